"""Every kernel computes what its reference says: emulated, in any order of threads; on a GPU."""

from typing import Any

import numpy as np
import pytest

from minidist import cuda, ops
from tests.cuda.cases.adamw import scalars_of
from tests.cuda.kernel_cases import Case, arrays_of, elsewhere, launch, on_device, wrong
from tests.cuda.kernel_cases_a import CASES as OF_TRAINING
from tests.cuda.kernel_cases_b import CASES as OF_A_MODEL

CASES = [*OF_TRAINING, *OF_A_MODEL]
NAMES = [case.name for case in CASES]


def emulated(case: Case, **settings: Any) -> list[bytes]:
    """Run a case on NumPy arrays, judge it, and return the bits of all its arrays."""
    before = case.arguments()
    after = elsewhere(before, np.copy)
    with cuda.settings(**settings):
        launch(case, after)
    assert not (text := wrong(case, before, after)), text
    return [x.tobytes() for x in arrays_of(after).values()]


def test_every_case_has_a_name_of_its_own():
    assert len(set(NAMES)) == len(NAMES)


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


@pytest.mark.kernel
@pytest.mark.parametrize("kernel", ["adamw_f32", "adamw_f32_vec"])
def test_emulated_adamw_gives_the_bits_of_the_array_version(kernel):
    """The emulator rounds as NumPy does: the kernel can take the place of `ops.adamw`."""
    rng, n = np.random.default_rng(0), 301
    x, g, m, v = rng.standard_normal((4, n)).astype(np.float32)
    v *= v
    mine, theirs = ([y.copy() for y in (x, g, m, v)] for _ in range(2))
    for t in (1, 2, 3):
        ops.adamw(*theirs, 0.01, 0.9, 0.95, 1e-8, 0.1, t)
        step = cuda.load("adamw.cu").get_function(kernel)
        step(2, 64, (*mine, None, *scalars_of(t), n))
    for a, b in zip(mine, theirs, strict=True):
        assert a.tobytes() == b.tobytes()
