"""The kernels on a device, beside their references: a part of `gpu_check`.

Each kernel runs all its cases of tests/cuda: odd lengths, unaligned arrays, results in place. What
must come out, and how far off it may be, stands there. Without a GPU a single case of each is
emulated, on NumPy arrays, to see that the check itself works.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from device_ops import Skip, Target

Check = Callable[[Target], str]


def kernel_checks() -> Iterator[tuple[str, Check]]:
    """Yield (name, check) for each kernel, the files in turn."""
    try:
        from tests.cuda import kernel_cases_a, kernel_cases_b
    except ImportError as error:
        reason = f"no {error.name}"
        yield "kernels", lambda target: skip(reason)
        return
    of_kernel: dict[tuple[str, str], list[Any]] = {}
    for case in (*kernel_cases_a.CASES, *kernel_cases_b.CASES):
        of_kernel.setdefault((case.file, case.kernel), []).append(case)
    for (file, kernel), cases in of_kernel.items():
        yield f"{file}: {kernel}", lambda target, cases=cases: run(target, cases)


def skip(reason: str) -> str:
    raise Skip(reason)


def run(target: Target, cases: list[Any]) -> str:
    """Run the cases of one kernel; all that are wrong are named."""
    from minidist import cuda
    from tests.cuda.kernel_cases import on_device

    if not target.real:
        works, reason = cuda.emulator_available()
        if not works:
            raise Skip(reason)
        cases = cases[-1:]
    found = [on_device(case, target.xp if target.real else np) for case in cases]
    wrong = [text for text in found if text]
    assert not wrong, f"{len(wrong)} of {len(cases)} cases: {'; '.join(wrong)}"
    return f"{len(cases)} of its cases"
