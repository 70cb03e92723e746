"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 01 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "half precision needs more memory than full",
        "01.1",
        '"moments": self.master * SLOTS[self.optimizer],',
        '"moments": self.master * (SLOTS[self.optimizer] + half),',
        "deepspeedai/DeepSpeed#3442: an estimator multiplied what the optimiser keeps by a wrong "
        "factor, and training in half precision seemed to take more memory than in float32. It "
        "takes as much: 16 bytes a parameter, and never 20.",
    ),
    Mutant(
        "every gradient has four bytes",
        "01.1",
        "BYTES[self.grad_dtype] if self.grad_dtype else self.master",
        "4",
        "deepspeedai/DeepSpeed#5099, #5102: an estimator of memory took gradients for float32, "
        "whatever they were. A test with one dtype alone finds nothing.",
    ),
    Mutant(
        "float32 with a master besides",
        "01.1",
        "self.master if half else 0",
        "self.master",
        "The row of mixed precision, read for float32: there the parameter is its own master, and "
        "20 bytes are four too many.",
    ),
    Mutant(
        "moments as short as the parameters",
        "01.1",
        "self.master * SLOTS",
        "BYTES[self.dtype] * SLOTS",
        "12 bytes a parameter look like a saving. AdamW's second moment holds squares of "
        "gradients, which bfloat16 keeps with two digits and float16 loses; here it is float32.",
    ),
    Mutant(
        "as many keys as queries",
        "01.2",
        "2 * shape.width * keys",
        "2 * shape.width * queries",
        "Right for GPT-3, where each query head has its own key head. Models with grouped queries "
        "(SmolLM2: 9 heads in 3 groups) come out too large.",
    ),
    Mutant(
        "a feed-forward layer of two matrices",
        "01.2",
        "3 * shape.width * shape.inner",
        "2 * shape.width * shape.inner",
        "The rule of thumb of 12 h^2 parameters a block knows two matrices of 4 h channels. With a "
        "gate there are three, and the hidden size is 8/3 h to make up for it.",
    ),
    Mutant(
        "the tied table counts twice",
        "01.3",
        "(1 if shape.tied else 2)",
        "2",
        "SmolLM2-135M would have 163 million parameters. Code that walks over layers, and not over "
        "arrays, counts, initialises or updates a shared table twice.",
    ),
    Mutant(
        "the last norm is forgotten",
        "01.3",
        "return tables + blocks + shape.width",
        "return tables + blocks",
        "A few hundred of a hundred million: no plot shows it, and a comparison with == does.",
    ),
    Mutant(
        "backward costs as much as forward",
        "01.4",
        "forward, backward = 2, 4",
        "forward, backward = 2, 2",
        "One of the two products of backward is forgotten. A time that is wrong by a third is "
        "explained away by the machine; a count is not.",
    ),
    Mutant(
        "multiply and add are one",
        "01.4",
        "forward, backward = 2, 4",
        "forward, backward = 1, 2",
        "Data sheets count them as two. Factors of two in printed formulas are reported again and "
        "again, as in stas00/ml-engineering#109.",
    ),
    Mutant(
        "recomputation is free",
        "01.4",
        "(2 if recompute else 1) * forward",
        "forward",
        "It saves memory and costs a second forward: 8 in place of 6, a third more.",
    ),
    Mutant(
        "one device does it all",
        "01.5",
        "flops / (devices * rate)",
        "flops / rate",
        "The days of one device, printed for a thousand.",
    ),
]
