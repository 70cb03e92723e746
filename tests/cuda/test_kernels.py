"""Every kernel computes what its reference says: emulated, in any order of threads; on a GPU."""

import functools
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from minidist import cuda
from tests.cuda import kernel_cases_a, kernel_cases_b
from tests.cuda.kernel_cases import Case, arrays_of, elsewhere, wrong

CASES = [*kernel_cases_a.CASES, *kernel_cases_b.CASES]
NAMES = [case.name for case in CASES]
BFLOAT16 = np.dtype(bfloat16)


@functools.cache
def module(file: str) -> Any:
    return cuda.load(file)


def launch(case: Case, args: list[Any]) -> None:
    kernel = module(case.file).get_function(case.kernel)
    kernel(case.grid, case.block, args, shared_mem=case.shared_mem)


def emulated(case: Case, **settings: Any) -> list[bytes]:
    """Run a case on NumPy arrays, judge it, and return the bits of all its arrays."""
    before = case.arguments()
    after = elsewhere(before, np.copy)
    with cuda.settings(**settings):
        launch(case, after)
    assert not (text := wrong(case, before, after)), text
    return [x.tobytes() for x in arrays_of(after).values()]


@pytest.mark.kernel
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_kernel_computes_the_same_in_any_order_of_its_threads(case):
    forward = emulated(case)
    for seed in (1, 2, 3):
        other = emulated(case, order="random", seed=seed)
        assert other == forward or not case.any_order, f"other bits with seed {seed}"


@pytest.mark.gpu
@pytest.mark.kernel
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_kernel_computes_on_a_gpu_what_its_reference_says(case):
    import cupy

    assert not (text := on_device(case, cupy)), text


def on_device(case: Case, xp: Any) -> str:
    """Run a case on a device and return what is wrong, or ''."""
    before, owners = case.arguments(), []

    def upload(owner: np.ndarray) -> Any:  # CuPy has no bfloat16: its bits go as uint16
        owners.append(xp.asarray(owner.view(np.uint16) if owner.dtype == BFLOAT16 else owner))
        return owners[-1]

    launch(case, elsewhere(before, upload))
    back = iter(owners)
    return wrong(case, before, elsewhere(before, lambda x: next(back).get().view(x.dtype)))
