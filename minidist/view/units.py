"""Numbers for people: 1.5 KiB, 20 us, 1.2k; and the round values that a log axis shows.

Bytes are counted in powers of 1024 (KiB, MiB), as sizes of arrays are; bytes per second in powers
of 1000 (GB/s), as the makers of networks do.
"""

import math

from minidist.errors import ConfigError

STEPS = {
    "bytes": (1024.0, {0: " B", 1: " KiB", 2: " MiB", 3: " GiB", 4: " TiB"}),
    "seconds": (1000.0, {-4: " ps", -3: " ns", -2: " µs", -1: " ms", 0: " s"}),
    "bytes/s": (1000.0, {0: " B/s", 1: " kB/s", 2: " MB/s", 3: " GB/s", 4: " TB/s"}),
    "": (1000.0, {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G"}),
}
"""For each unit the factor from one name to the next, and the names by power of that factor."""


def readable(value: float, unit: str = "") -> str:
    """Return a number of this unit with three digits at most: 1536 bytes are "1.5 KiB"."""
    if unit not in STEPS:
        raise ConfigError(f"unit {unit!r} is none of {', '.join(map(repr, STEPS))}")
    step, names = STEPS[unit]
    power = 0
    if value:
        power = math.floor(math.log(abs(value), step) + 1e-9)
        power += abs(value) / step**power >= step * (1 - 5e-4)  # 1023.9 KiB is 1 MiB
    power = min(max(power, min(names)), max(names))
    scaled = value / step**power
    digits = f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.3g}"
    return digits + names[power]


def ticks(low: float, high: float, unit: str = "") -> list[float]:
    """Return the round values around and between ``low`` and ``high`` > 0 for a log axis.

    Powers of 2, 32 or 1024 for bytes, of 10 or 1000 for all else: so that there are ten at most.
    """
    bases = (2, 32, 1024) if unit == "bytes" else (10, 1000)
    for base in bases:
        first = math.floor(math.log(low, base) + 1e-9)
        last = math.ceil(math.log(high, base) - 1e-9)
        if last - first < 10:
            break
    return [float(base) ** power for power in range(first, last + 1)]


def even_step(high: float, unit: str = "") -> float:
    """Return a round step that goes into ``high`` > 0 about five times, for a linear axis."""
    rough = high / 5
    if unit == "bytes":
        return 2.0 ** max(round(math.log2(rough)), 0)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * k for k in (1, 2, 5, 10) if power * k >= rough * (1 - 1e-9))
