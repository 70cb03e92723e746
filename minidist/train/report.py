"""The end of a run in words and numbers: how good the loss is, and what the gradients cost.

    loss on the validation bytes beside what simple predictors make of the same text
    bytes that the gradients took beside 2(N-1)/N of their size

Both are measured here and now: the baselines from the text itself, the traffic from the counters of
the communicator.
"""

from math import log

from minidist.comm import Comm
from minidist.parallel.data import TRAFFIC, DataParallel
from minidist.train.baselines import Baseline, baselines
from minidist.train.corpus import Corpus, Text


def loss_report(text: Text, corpus: Corpus, loss: float) -> str:
    """Return the table of losses. Local: rank 0 calls it."""
    ours = Baseline("this model", float("nan"), loss)
    rows = sorted([*baselines(text.data, len(corpus.train)), ours], key=lambda row: -row.validation)
    lines = [
        "nats per byte (bits in brackets); lower is better",
        f"{'':18}{'last 10 %, unseen':>20}{'whole text':>18}",
    ]
    for row in rows:
        whole = f"{'-':>18}" if row is ours else f"{_nats(row.whole):>18}"
        lines.append(f"{row.name:18}{_nats(row.validation):>20}{whole}")
    lines.append("last 10 %: given the first 90 %. whole text: described by itself.")
    return "\n".join(lines)


def _nats(value: float) -> str:
    return f"{value:.3f} ({value / log(2):.2f})"


def traffic_report(comm: Comm, sync: DataParallel, steps: int) -> str:
    """Return the gradients' traffic beside the formula. All ranks call it.

    Pieces of a bucket differ by one element where N does not divide it, and so do the ranks; the
    sum over ranks is 2(N-1) times the bytes of the gradient, exactly.
    """
    sent = comm.gather_objects(comm.traffic.by[TRAFFIC].bytes)
    n, size = comm.size, sync.gradient_bytes
    formula = 2 * (n - 1) * size * steps
    verdict = "exactly" if sum(sent) == formula else f"NOT equal: measured {sum(sent):,}"
    return (
        f"gradients: {size:,} bytes, {steps} steps on {n} ranks\n"
        f"  sent by all ranks   {sum(sent):,} bytes\n"
        f"  2(N-1) x size       {formula:,} bytes, {verdict}\n"
        f"  per rank and step   {sum(sent) / n / max(1, steps):,.0f} bytes, "
        f"{2 * (n - 1) / n:.3f} of the gradient"
    )
