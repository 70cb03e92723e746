"""Wrong versions of the solutions: one changed line each, and who met it. check.py rejects all.

    ./run check 06 --mutant 1       shows what check.py says to the first one

Reports are retold in our own words.
"""

from minidist.learn.subject import Mutant

MUTANTS = [
    Mutant(
        "every rank judges for itself",
        "06.4",
        "overflow = not isfinite(norm)",
        "overflow = not isfinite(self.sync.squares())",
        "NVIDIA-NeMo/Megatron-Bridge#5591: each part of the model lowered its own loss scale "
        "before the ranks had agreed on the overflow. From then on their gradients had different "
        "factors, and nothing said so.",
    ),
    Mutant(
        "no master after all",
        "06.1",
        "master += np.float32(step)",
        "master = up(down(master + np.float32(step), alone.dtype))",
        "The master is made anew from the rounded weight, as after loading a checkpoint that has "
        "kept no masters. It has float32's steps, and still never moves.",
    ),
    Mutant(
        "float32 in disguise",
        "06.1",
        "alone = down(up(alone) + np.float32(step), alone.dtype)",
        "alone = up(alone) + np.float32(step)",
        "One sum of a half array and a float32 makes a float32: the half type has gone, with its "
        "savings, and every test of accuracy passes.",
    ),
    Mutant(
        "v is not corrected",
        "06.2",
        "1.0 / sqrt(1.0 - beta2**t)",
        "1.0",
        "With beta2 = 0.99 the first steps are ten times too long; a warm-up hides it.",
    ),
    Mutant(
        "the decay goes into the moments",
        "06.2",
        "x *= keep",
        "g = g + weight_decay * x",
        "Adam with an L2 term, which most libraries shipped for years: weights with large "
        "gradients hardly decay (Loshchilov and Hutter, arXiv 1711.05101).",
    ),
    Mutant(
        "good steps, but not in a row",
        "06.3",
        "self.good = self.good + 1 if finite else 0",
        "self.good += finite",
        "After an overflow the scale is soon doubled again, straight into the next one.",
    ),
    Mutant(
        "halved for ever",
        "06.3",
        "if self.scale / 2 < LEAST:",
        "if False:",
        "A run that has diverged skips every step from now on, with a scale of 2**-100, and looks "
        "busy until somebody asks why the loss is a constant.",
    ),
    Mutant(
        "the scale of the next step",
        "06.4",
        "loss, norm = loss",
        "self.loss_scale.update(isfinite(squares)); loss, norm = loss",
        "deepspeedai/DeepSpeed#2686: gradients were divided by the scale after its update. The "
        "norm is wrong exactly in steps after which the scale changes, by a factor of 2.",
    ),
    Mutant(
        "only cut state is protected",
        "06.4",
        "overflow = not isfinite(norm)",
        "overflow = not isfinite(norm) and self.sync.stage > 0",
        "hpcaitech/ColossalAI#663: after an overflow only sharded parameters were restored; those "
        "that each rank has whole kept the infinity. Here nothing is restored: until the verdict "
        "nothing is written.",
    ),
    Mutant(
        "the scale stays in",
        "06.5",
        "factor / self.loss_scale.scale",
        "factor",
        "Adam divides a constant factor out again, so the loss looks right, until the scale "
        "changes. Plain gradient descent shows it in the first step.",
    ),
    Mutant(
        "clipped with the scale in",
        "06.5",
        "self.clip / norm if self.clip and norm > self.clip",
        "self.clip / (norm * self.loss_scale.scale) if self.clip and norm > self.clip",
        "To clip before the scale is taken out is a classic: every step is clipped, 65536 times "
        "too much, and Adam hides that, too.",
    ),
    Mutant(
        "skipped steps are counted",
        "06.5",
        "number = step + 1 - self.loss_scale.skipped",
        "number = step + 1",
        "Adam divides by 1 - beta**t, where t counts updates. float16 begins with some skipped "
        "steps while the scale is searched for, so the first updates come out too small.",
    ),
]
