"""Wrong versions of the solutions, one changed line each, and who met it. check.py rejects them.

    ./run check 04 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "a barrier is missing",
        "04.2",
        "        __syncthreads();",
        "",
        "The barrier at the end of each round. warpfront/hipfire#575: without one, 640 of 286 "
        "million sums of squares came out negative, their roots were NaN, and a language model "
        "wrote exclamation marks in mid-sentence. arrayfire/arrayfire#633 had it in a reduction.",
    ),
    Mutant(
        "every thread has an element",
        "04.1",
        "if (i < n) out[i]",
        "out[i]",
        "risc0/risc0#3803: kernels without a bounds test read and wrote beyond their arrays at "
        "every launch, 183 times in a run whose result was right. numba/numba#7284 had it in a "
        "test of its own.",
    ),
    Mutant(
        "one thread too many",
        "04.1",
        "if (i < n)",
        "if (i <= n)",
        "The classic. Where n threads fill the blocks there is no such thread, and all is well.",
    ),
    Mutant(
        "every block does the same",
        "04.1",
        "(long long)blockIdx.x * blockDim.x + threadIdx.x",
        "threadIdx.x",
        "Right for one block, so for any small test; the rest of the array keeps its old values.",
    ),
    Mutant(
        "the odd one is dropped",
        "04.2",
        "(count + 1) / 2",
        "count / 2",
        "karpathy/llm.c#439: a reduction that halves was right for blocks of 32, 64, 128, 256 and "
        "512 threads, and wrong for the next size that was tried, which is no power of two.",
    ),
    Mutant(
        "a partner that is not there",
        "04.2",
        "if (t + half < count)",
        "if (t < half)",
        "With an odd count the last thread of the first half has no partner. It reads what an "
        "earlier round has left there, or beyond the array.",
    ),
    Mutant(
        "threads without an element leave their part as it is",
        "04.2",
        "parts[t] = i < n ? x[i] : 0.0f;",
        "if (i < n) parts[t] = x[i];",
        "OP-DSL/OP2-Common#162: where there were fewer elements than threads, the reduction added "
        "what shared memory held before. It is not zero at first: it holds what others left.",
    ),
    Mutant(
        "all blocks write to one place",
        "04.2",
        "out[blockIdx.x] = parts[0]",
        "out[0] = parts[0]",
        "The sum of whichever block comes last. kaldi-asr/kaldi#3036 asks what a reduction that is "
        "meant for one block does when it is launched on three.",
    ),
    Mutant(
        "the stride is that of a block",
        "04.3",
        "i += index_stride()",
        "i += blockDim.x",
        "Every value is right: blocks do each other's work again, in nearly as many times the time "
        "as there are blocks. sonots/cumo#240 had the reverse: from 2**32 elements on the stride "
        "was 0.",
    ),
    Mutant(
        "the wrong one is scaled",
        "04.3",
        "a + alpha * b",
        "alpha * a + b",
        "Right for alpha = 1, which is what one tries first.",
    ),
    Mutant(
        "sent before the kernel has ended",
        "04.4",
        "self.device.synchronise()",
        "pass",
        "mpi4py/mpi4py#60 and CliMA/ClimaCore.jl#2256: random results with several processes. MPI "
        "read the array while the kernel that fills it was still at work.",
    ),
    Mutant(
        "read before it is there",
        "04.5",
        "self.device.synchronise()",
        "pass",
        "mpi4jax/mpi4jax#230: right after a receive the array held old data, because nothing "
        "ordered the copy to the device with the kernel that read it.",
    ),
]
