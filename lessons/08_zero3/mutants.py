"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 08 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "a buffer that has not arrived",
        "08.3",
        "self.gathering.wait()",
        "self.gathering.poll()",
        "NVIDIA/Megatron-LM#950: gathers were started ahead in the order of storage, which was not "
        "that of forward, and some layers ran with what was there: last step's weights.",
    ),
    Mutant(
        "a parameter with two homes",
        "08.1",
        "users[p].append(index)",
        "users[p, index].append(index)",
        "PrecipiceBlades/fsdp-learning-cs336-style, a diary: nested wrapping put a layer into two "
        "flat buffers. Two owners update it, and whoever gathers last wins.",
    ),
    Mutant(
        "used by its first unit alone",
        "08.1",
        "users[p].append(index)",
        "users.setdefault(p, [index])",
        "The head's table is freed when the embedding is done, and its gradient is reduced before "
        "the embedding has added its part.",
    ),
    Mutant(
        "gathered once more",
        "08.2",
        "if self.gathering is not None or not (self.stale or self.flat is None):",
        "if not (self.stale or self.flat is None or self.gathering is not None):",
        "Numbers are right, bytes are not: what was started ahead is started again when the unit "
        "comes.",
    ),
    Mutant(
        "empty is taken for absent",
        "08.2",
        "if self.flat is None:",
        "if self.flat is None and self.stored.size:",
        "deepspeedai/DeepSpeed#8375: what to gather was decided by a number of elements, and a "
        "parameter without any broke training. Here a rank with an empty chunk has no room.",
    ),
    Mutant(
        "nobody counts",
        "08.3",
        "self.held += 1",
        "self.held = 1",
        "A shared table that two units hold is freed by the first that is done.",
    ),
    Mutant(
        "the buffer is freed under a user",
        "08.4",
        "if self.stage < 3 or self.held:",
        "if self.stage < 3:",
        "The other half of the same mistake: the count is kept, and not asked.",
    ),
    Mutant(
        "freed in the books only",
        "08.4",
        "self.flat = None",
        "self.flat = self.flat",
        "The account says free, and the memory is there. The next forward finds a buffer, does not "
        "gather, and computes with the parameters of before the update.",
    ),
    Mutant(
        "nothing ahead",
        "08.5",
        "self.fetch(ahead)",
        "pass",
        "All numbers and bytes are right. Each unit waits for its parameters, and the network "
        "waits for each unit.",
    ),
    Mutant(
        "everything ahead",
        "08.5",
        "self.fetch(ahead)",
        "[self.fetch(u) for u in range(len(self._used))]",
        "The fastest there is, and the whole model is in memory again.",
    ),
    Mutant(
        "only the last micro-batch",
        "08.6",
        "self.begun = True",
        "self.begun = False",
        "InfiniTensor/InfiniTrain#213: under ZeRO-2 one micro-batch of the step was used. Here it "
        "is the last; a test with one micro-batch sees nothing.",
    ),
    Mutant(
        "the gradient is never freed",
        "08.6",
        'self.how.ledger.give("buffers", flat.nbytes)',
        "pass",
        "karpathy/nanochat#566: ZeRO-2 was written on it and the memory was that of ZeRO-1, which "
        "nobody had measured. All gradients are there, whole, when backward is done.",
    ),
]
