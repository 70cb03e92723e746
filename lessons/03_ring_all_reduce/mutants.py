"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 03 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "the tail is dropped",
        "03.6",
        "cut = bounds(result.size, power)",
        "cut = [result.size // power * i for i in range(power + 1)]",
        "hw-native-sys/pypto#1942, found in review: a ring all-reduce cut the array into n // N "
        "elements a rank and never sent the rest. Every test whose size the ranks divide passes. "
        "PrimeIntellect-ai/prime-diloco#44 and ROCm/rocm-systems#3213 are its relatives.",
    ),
    Mutant(
        "the server counts itself twice",
        "03.1",
        "combine(op, result, arriving, out=result)",
        "combine(op, result, result, out=result)",
        "With all inputs equal to one and two ranks this is even right: baidu-research/"
        "baidu-allreduce tests with ones alone.",
    ),
    Mutant(
        "somebody never hears from the server",
        "03.1",
        "for to in others:",
        "for to in others[1:]:",
        "A rank waits for ever in a receive. Over MPI that is a job that does nothing, without a "
        "word (horovod/horovod#100); here the deadlock is proved and named.",
    ),
    Mutant(
        "the nearest child first",
        "03.2",
        "for child in reversed(children):",
        "for child in children:",
        "Every value is right, and the time is not: the child with half of all ranks behind it is "
        "told last. Only a check of rounds sees it.",
    ),
    Mutant(
        "the ring turns round",
        "03.3",
        "yield Exchange(comm, passing, (r + 1) % n, arriving, (r - 1) % n)",
        "yield Exchange(comm, passing, (r - 1) % n, arriving, (r + 1) % n)",
        "On two ranks left and right are the same rank, so a test with two processes, as "
        "stanford-cs336/assignment2-systems has, cannot see it.",
    ),
    Mutant(
        "the input is scratch paper",
        "03.3",
        "passing = own if s == n - 2 else arriving",
        "passing = own if s == n - 2 else mine",
        "open-mpi/ompi#9385: a ring that was not written for one buffer in two roles gave wrong "
        "sums in place. Here the caller's array is changed where only its own piece should be.",
    ),
    Mutant(
        "always a sum",
        "03.3",
        "combine(op,",
        'combine("sum",',
        "The overflow flag of mixed precision is reduced by max; a sum of flags is right as long "
        "as no more than one rank overflows.",
    ),
    Mutant(
        "the same piece again and again",
        "03.4",
        "piece(r - s), (r + 1)",
        "piece(r), (r + 1)",
        "Right on two ranks, where there is only one step.",
    ),
    Mutant(
        "a result in the wrong place",
        "03.5",
        "yield from reduce_scatter.steps(comm, x, own, op)",
        "yield from reduce_scatter.steps(comm, x, op=op)",
        "NovaSky-AI/SkyRL#1886, found in review: the reduction went into a copy and the original "
        "was returned, so training would have gone on with gradients that nobody had summed.",
    ),
    Mutant(
        "workers taken for ranks",
        "03.6",
        "yield Exchange(comm, give, rank(partner), arriving, rank(partner))",
        "yield Exchange(comm, give, partner, arriving, partner)",
        "Right for 2, 4 and 8 ranks. ROCm/rocm-systems#3856 is of this kind: an offset that is "
        "right only as long as all nodes have equally many ranks.",
    ),
    Mutant(
        "one round too few on the way back",
        "03.6",
        "while width < power:",
        "while width < power // 2:",
        "On one rank there is no way back, and on two there is only this round.",
    ),
]
