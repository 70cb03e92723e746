"""report.html: every number on it is one that the run has counted, and the run survives it."""

import json
import re
from html import unescape

import pytest

from minidist.errors import ConfigError
from minidist.testing.mutants import mutate
from minidist.train import timeline
from minidist.train.timeline import Rank, merged, read_timeline, words
from minidist.view.lanes import Block
from tests.train.runs import rows, train

pytestmark = pytest.mark.usefixtures("folder")


def cells(page, heading):
    """The table of a section: first cell -> the others."""
    part = page.partition(f'<h2 id="{heading}">')[2].partition("</section>")[0]
    lines = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', part)
    return {name: re.findall(r"<td.*?>(.*?)</td>", rest) for name, rest in lines}


def printed(out, kind, table):
    """The line of a kind in a table at the end of a run: "sent by" or "memory of"."""
    return re.search(rf"^  {kind} .*$", out.partition(table)[2], re.M)[0]


@pytest.mark.parametrize("flags", [{"zero": 0, "in_process": 1}, {"zero": 3, "in_process": 3}])
def test_the_page_has_the_numbers_of_the_run(folder, capsys, flags):
    assert train(out="r", **flags) == 0
    out, page = capsys.readouterr().out, (folder / "r/report.html").read_text()
    assert "report: r/report.html" in out
    assert page.startswith("<!DOCTYPE html>\n")
    for kind, (formula, sent, told) in cells(page, "traffic").items():
        line = printed(out, kind, "sent by")
        assert f"{sent} bytes   formula" in line
        assert re.search(rf" {formula} bytes, {told}$", line)
    memory = cells(page, "memory")
    assert len(memory) == 6
    for kind, numbers in memory.items():
        assert printed(out, kind, "memory of").split()[:4] == [kind, *numbers[:3]]
    logged = rows(folder / "r")
    assert f"went from {logged[0].loss:.3f} to {logged[-1].loss:.3f} nats" in page
    assert cells(page, "loss")["this model"][0] == f"{logged[-1].val_loss:.3f}"
    assert len(cells(page, "loss")) == 6
    for step in ("forward unit 1", "backward unit 2", "wait for gradients", "update"):
        assert f"<title>{step}: " in page
    assert out.count(unescape(re.search(r"<pre>(.*?)</pre>", page, re.S)[1])) == 1
    assert ("rank 2" in page) == (flags["in_process"] == 3)
    assert ("messages under way" in page.partition("<figcaption>")[2]) or "Timeline" in page


def test_a_run_that_never_validates_but_at_its_end_and_one_step(folder):
    assert train(out="r", steps=1, validate_every=0) == 0
    assert "</html>" in (folder / "r/report.html").read_text()


def test_a_report_that_cannot_be_written_is_a_sentence_and_the_run_is_whole(folder, capsys):
    (folder / "r/report.html.tmp").mkdir(parents=True)
    assert train(out="r", steps=2) == 0
    taken = capsys.readouterr()
    assert re.fullmatch(r"minidist train: no report: .*report.html.tmp.*\n", taken.err)
    assert "moments" in taken.out
    assert (folder / "r/model.safetensors").exists()


# --- the timeline ---------------------------------------------------------------------------------


def record(rank, name, start, stop, kind="compute"):
    times = {"ts": 1e6 * start, "dur": 1e6 * (stop - start)}
    return {"ph": "X", "pid": rank, "tid": 0, "name": name, "cat": kind, **times}


RECORDS = [
    {"ph": "M", "pid": 1, "tid": 0, "name": "thread_name", "args": {"name": "compute"}},
    record(1, "forward unit 12", 0.5, 1.0),
    record(0, "step 3", 0.0, 4.0),
    record(0, "forward unit 0", 0.0, 1.0),
    record(0, "backward unit 0", 1.0, 2.0),
    record(0, "hop 1", 1.75, 3.0, "communication"),
    record(0, "hop 0", 1.5, 2.5, "communication"),
    record(0, "hop 2", 2.5, 2.75, "communication"),
    record(0, "all-reduce unit 0", 3.5, 3.75, "communication"),
    record(0, "wait for gradients", 2.0, 3.0),
    record(0, "update", 3.0, 4.0),
    {"ph": "C", "pid": 0, "name": "held", "ts": 5e5, "args": {"bytes": 1234567}},
]


def check_timeline(folder, read=read_timeline):
    (folder / "t.json").write_text(json.dumps({"traceEvents": RECORDS}))
    first, second = read(folder / "t.json")
    assert first.computed == [
        Block(0.0, 1.0, "forward", "0", "forward unit 0"),
        Block(1.0, 2.0, "backward", "0", "backward unit 0"),
        Block(2.0, 3.0, "waits", "", "wait for gradients"),
        Block(3.0, 4.0, "update", "", "update"),
    ]
    assert first.travelled == [(1.5, 3.0), (3.5, 3.75)]
    assert (first.messages, first.waited) == (1.75, 1.0)
    assert first.memory == [(0.5, 1234567)]
    assert second == Rank([Block(0.5, 1.0, "forward", "12", "forward unit 12")], [], [])


def test_a_trace_is_read_back(folder):
    check_timeline(folder)


@pytest.mark.parametrize(
    ("function", "old", "new"),
    [
        (merged, "max(stop, found[-1][1])", "stop"),
        (merged, "for start, stop in sorted(times)", "for start, stop in times"),
        (merged, "start <= found[-1][1]", "False"),
        (read_timeline, "for number in sorted(found)", "for number in found"),
        (
            read_timeline,
            '/ 1e6\n        if record["ph"] == "C"',
            '/ 1e3\n        if record["ph"] == "C"',
        ),
    ],
)
def test_a_trace_that_is_read_wrongly_is_seen(folder, monkeypatch, function, old, new):
    broken = mutate(function, old, new)
    monkeypatch.setattr(timeline, function.__name__, broken)
    with pytest.raises(AssertionError):
        check_timeline(folder, timeline.read_timeline)


def test_the_timeline_in_words(folder):
    (folder / "t.json").write_text(json.dumps({"traceEvents": RECORDS}))
    ranks = read_timeline(folder / "t.json")
    assert words(ranks) == (
        "Rank 0 took 4000.0 ms for this step; messages of its rings were under way for 1750.0 ms "
        "of it, and for 1000.0 ms it did nothing but wait for gradients. It held at most 1,234,567 "
        "bytes."
    )
    assert words(ranks[1:]) == "Rank 0 took 1000.0 ms for this step."
    assert words(ranks * 5).endswith(" Shown are the first 8 of 10 ranks.")
    assert timeline.draw(ranks * 5).count(">rank ") == 8
    with pytest.raises(ConfigError, match="nothing to draw"):
        timeline.draw([Rank([], [], [])] * 2)
