"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 07 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "the norm of what is not reduced yet",
        "07.4",
        "total = total + sum_of_squares(b.sum)",
        "total = total + sum_of_squares(b.grad if b.stage < 2 else b.sum)",
        "karpathy/llm.c#524: under ZeRO-1 each rank took the norm of its whole gradient buffer, of "
        "which only its own chunk had been reduced. Training went on, with a wrong clip factor.",
    ),
    Mutant(
        "silently whole",
        "07.1",
        "if stage < CUT_FROM[kind]:",
        "if stage < CUT_FROM[kind] or n % comm.size:",
        "karpathy/llm.c: if the ranks do not divide the parameters, zero.cuh prints a line and "
        "goes on without ZeRO. The numbers are right, and the memory is not what was asked for.",
    ),
    Mutant(
        "cut one stage late",
        "07.1",
        "if stage < CUT_FROM[kind]:",
        "if stage <= CUT_FROM[kind]:",
        "Stage 1 then saves nothing. Training is the same; only the memory tells.",
    ),
    Mutant(
        "everything is cut",
        "07.2",
        "Fraction(n, ranks if stage >= CUT_FROM[kind] else 1)",
        "Fraction(n, ranks if stage else 1)",
        "16 / N at every stage: the formula of stage 3. On one rank nobody sees it.",
    ),
    Mutant(
        "only the last micro-batch",
        "07.3",
        'combine("sum", onto, chunk, out=onto)',
        "onto[...] = chunk",
        "InfiniTensor/InfiniTrain#213: ZeRO-2 with accumulation used the gradient of one "
        "micro-batch only. The loss falls all the same, more slowly.",
    ),
    Mutant(
        "the earlier micro-batches count again",
        "07.3",
        "chunk = yield from scatter.reduce_scatter.steps(comm, flat, out)",
        "chunk = yield from scatter.reduce_scatter.steps(comm, flat, out); "
        "onto is None or combine('sum', onto, chunk, out=onto)",
        "Twice as much of every micro-batch but the first. With one micro-batch all is right.",
    ),
    Mutant(
        "always the ring",
        "07.3",
        "scatter = pairwise if is_half(flat.dtype) else ring",
        "scatter = ring",
        "In a ring the sum of half types is rounded once on each rank: 1 + 63 * 2**-9 stays 1 on "
        "64 ranks.",
    ),
    Mutant(
        "copies count",
        "07.4",
        "if b.counted:",
        "if b.stage >= 0:",
        "NVIDIA-NeMo/RL#3788, ROCm/TransformerEngine#715: squared norms of replicated parameters "
        "were summed over the ranks that hold copies. With a copy of 1 beside 2 and 2 the norm is "
        "3.162 in place of 3.",
    ),
    Mutant(
        "the wrong piece of the gradient",
        "07.5",
        "b.gradient[place], factor,",
        "b.gradient[: place.stop - place.start], factor,",
        "Right as long as a bucket is one tensor. With two, the second is updated with the "
        "gradient of the first, and a loss that falls is no proof.",
    ),
    Mutant(
        "clipping is forgotten",
        "07.5",
        "b.gradient[place], factor,",
        "b.gradient[place], 1.0,",
        "With Adam the loss hardly changes: it divides a constant factor out again.",
    ),
    Mutant(
        "nobody asks for the other chunks",
        "07.6",
        "self.stale = self.stage in (1, 2) and self.comm.size > 1",
        "self.stale = self.stage == 1 and self.comm.size > 1",
        "Each rank trains its own chunk and keeps the first values of all others. The loss falls.",
    ),
    Mutant(
        "gathered twice",
        "07.6",
        "self.stale = self.stage in (1, 2) and self.comm.size > 1",
        "self.stale = self.comm.size > 1",
        "Stage 0 has gathered the gradient and updated everything: to gather parameters on top is "
        "half as much traffic again, and the numbers are right.",
    ),
]
