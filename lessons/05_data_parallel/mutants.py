"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 05 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "a mean of means",
        "05.2",
        "np.array([total, count], dtype=np.float64)",
        "np.array([total / max(1, count), count > 0], dtype=np.float64)",
        "pytorch/torchtitan#1842, huggingface/transformers#34242, vllm-project/speculators#942 and "
        "more: a mean on each rank, then a mean over the ranks. With equal counts it is right, so "
        "tests without padding pass; then the loss depends on who got which sample.",
    ),
    Mutant(
        "every rank works on the whole batch",
        "05.1",
        "share(comm, batch)",
        "0, batch",
        "Four ranks for the work of one. The loss curve is fine, and the time is too.",
    ),
    Mutant(
        "the last samples are dropped",
        "05.1",
        "bounds(stop - start, parts)",
        "[i * ((stop - start) // parts) for i in range(parts + 1)]",
        "If the parts do not divide, some samples are never learned from. No number looks wrong.",
    ),
    Mutant(
        "buckets are filled from the first unit on",
        "05.3",
        "in reversed(groups)",
        "in groups",
        "The bucket that is left over is then that of the last units, which backward reaches "
        "first; and the ring of the first units, which nothing can hide, is a full one.",
    ),
    Mutant(
        "a shared table is reduced when its first user reports",
        "05.4",
        "final = finished == b.users",
        "final = len(finished) == 1",
        "The head reports first, and the embedding adds its part to a gradient that has gone. Only "
        "models with a tied table show it.",
    ),
    Mutant(
        "the first micro-batch is reduced, the last one is not",
        "05.4",
        "if final or (b.stage >= 2 and reported | finished == b.users):",
        "if b.ring is None:",
        "modelscope/FunASR#3472: off by one in when to synchronise, and ranks went apart. With one "
        "micro-batch a step it is right.",
    ),
    Mutant(
        "each ring is waited for at once",
        "05.4",
        "self._launch(b, final)",
        "self._launch(b, final).wait()",
        "All sums are right, in buckets and in backward order, and backward stands still for each "
        "of them.",
    ),
    Mutant(
        "nobody polls",
        "05.5",
        "b.ring.poll()",
        "continue",
        "All sums are right. The rings start early and then stand still until the step waits: the "
        "code for overlap is there, and the overlap is not.",
    ),
    Mutant(
        "poll waits",
        "05.5",
        "b.ring.poll()",
        "b.ring.wait()",
        "All sums are right, and every ring costs its whole time. Only a clock shows it.",
    ),
    Mutant(
        "a ring that was never started is polled",
        "05.5",
        "if b.ring and not b.ring.done:",
        "if not b.ring.done:",
        "It fails in the first poll, before the last unit has reported; or, if somebody thinks of "
        "that, in the first model with a frozen layer.",
    ),
    Mutant(
        "gradients are used while their ring is under way",
        "05.6",
        "wait_all([b.ring for b in self._reduced if b.ring])",
        "[b.ring for b in self._reduced if b.ring]",
        "deepspeedai/DeepSpeed#3727, #7371: a buffer was filled again while its reduction still "
        "read it, and with overlap on, the loss was wrong after a few steps. On a fast network it "
        "works.",
    ),
    Mutant(
        "only one ring is waited for",
        "05.6",
        "wait_all([b.ring for b in self._reduced if b.ring])",
        "wait_all([b.ring for b in self._reduced if b.ring][-1:])",
        "deepspeedai/DeepSpeed#8061 is of this kind: a reducer waited for one stream of work, and "
        "there were several.",
    ),
]
