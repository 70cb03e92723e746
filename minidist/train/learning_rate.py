"""The learning rate as a function of the step: a warm-up, then half a cosine.

    peak |     .-~~-.
         |    /      `-.
         |   /          `-.
         |  /              `~-..__  peak / 10
         +--|------------------|--> step
          warm-up            steps

A scheduler object with a counter has to be saved, restored and never advanced once too often
(a resumed run with a rate that jumps ahead is a known bug). A function of the step has no state.
"""

from math import cos, pi

from minidist.errors import ConfigError

FLOOR = 0.1
"""The last rate, as a share of the peak (Hoffmann et al., "Training compute-optimal large language
models", 2022, decay by ten)."""


def cosine(step: int, *, peak: float, steps: int, warmup: int = 0) -> float:
    """Return the rate of update number `step` (0-based) in a run of `steps` updates.

    The first `warmup` updates rise in equal parts to `peak`; the last update uses `FLOOR * peak`.
    """
    if not 0 <= warmup <= steps:
        raise ConfigError(f"a warm-up of {warmup} steps does not fit in {steps} steps")
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min(1.0, (step - warmup + 1) / max(1, steps - warmup))
    return peak * (FLOOR + (1 - FLOOR) * (1 + cos(pi * progress)) / 2)
