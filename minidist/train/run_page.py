"""`report.html`: what a run has come to, on one page that can be sent and opened anywhere.

    loss        against steps, beside what simple predictors make of the same text
    traffic     bytes sent beside the formula of the ZeRO stage
    memory      bytes held beside the formulas, by kind
    timeline    one step on each rank: what it computed, what travelled, what it held
    sample      a text by the model

All numbers come from the run: from metrics.jsonl, trace.json and the counters. See also
`minidist.view.page`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from minidist.train import metrics
from minidist.train.baselines import Baseline
from minidist.train.folder import RunFolder
from minidist.train.memory_report import Row
from minidist.train.report import OURS, Flow
from minidist.train.timeline import draw, read_timeline
from minidist.view.curves import curves
from minidist.view.page import Section, figure, page, quote, table


class Ending(NamedTuple):
    """What is known at the end of a run besides its files."""

    about: str
    """The run in a sentence: corpus, ranks, stage."""
    losses: Sequence[Baseline]
    """The model among its baselines, the best last; empty if nothing was validated."""
    traffic: Sequence[Flow]
    memory: Sequence[Row]
    work: int
    """Bytes of the work pieces of rings, which no formula counts."""
    sample: str


def run_page(folder: RunFolder, ending: Ending) -> str:
    """Return the page of a finished run. Local: rank 0 calls it."""
    sections = [
        _loss(metrics.read(folder.metrics), ending.losses),
        _traffic(ending.traffic),
        _memory(ending.memory, ending.work),
        *([_timeline(folder)] if folder.trace.exists() else []),
        Section("Sample", "What the model writes by itself.", quote(ending.sample)),
    ]
    return page(f"Run {folder.path.name}", ending.about, sections)


def _loss(rows: Sequence[metrics.Metrics], losses: Sequence[Baseline]) -> Section:
    series = {"training": [(float(row.step), row.loss) for row in rows]}
    checked = [(float(r.step), r.val_loss) for r in rows if r.val_loss is not None]
    if checked:
        series["validation"] = checked
    words = f"The loss of the batch went from {rows[0].loss:.3f} to {rows[-1].loss:.3f} nats a byte"
    levels = {b.name: b.validation for b in losses if b.name != OURS}
    body = ""
    if checked:
        ours = checked[-1][1]
        beaten = [name for name, value in levels.items() if ours < value]
        words += f"; on text that was not trained on it is {ours:.3f}, " + (
            f"better than {', '.join(beaten)}" if beaten else "better than none of the baselines"
        )
        body = _baselines(losses)
    picture = curves(
        series,
        {name: v for name, v in levels.items() if v < 5},
        x="steps",
        y="nats a byte",
        title="Loss",
        words=words + ".",
    )
    how = (
        "Lower is better. The dashed lines are simple predictors and file compressors that know "
        "the training text and are measured on the rest."
    )
    return Section("Loss", how, figure(picture) + body)


def _baselines(losses: Sequence[Baseline]) -> str:
    head = ["", "unseen last 10 %", "whole text"]
    rows = [
        (b.name, f"{b.validation:.3f}", "-" if b.name == OURS else f"{b.whole:.3f}") for b in losses
    ]
    return table(head, rows, "nats per byte; lower is better")


def _traffic(flows: Sequence[Flow]) -> Section:
    rows = [(f.kind, f"{f.formula:,}", f"{f.sent:,}", f.told) for f in flows]
    words = "What all ranks together have sent in this sitting, and what the formula says."
    head = ["", "formula", "sent", "comparison"]
    return Section("Traffic", words, table(head, rows, "bytes"))


def _memory(rows: Sequence[Row], work: int) -> Section:
    cells = [(r.kind, f"{r.formula:,}", f"{r.held:,}", f"{r.peak:,}", r.told) for r in rows]
    words = (
        "What rank 0 held when the run ended and at most, by kind. For buffers the formula is a "
        f"bound. Work pieces of rings took {work:,} bytes more."
    )
    head = ["", "formula", "held", "at most", "comparison"]
    return Section("Memory", words, table(head, cells, "bytes on rank 0"))


def _timeline(folder: RunFolder) -> Section:
    ranks = read_timeline(folder.trace)
    words = (
        "For each rank: what it computed, by number of the unit; when messages were under way, "
        "which cost nothing beside computation; the bytes that it held. Messages one by one are "
        f"in {folder.trace.name}, for https://ui.perfetto.dev."
    )
    return Section("Timeline of a step", words, figure(draw(ranks)))
