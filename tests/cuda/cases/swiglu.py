"""Cases of swiglu.cu: forward and backward, in float32 and bfloat16."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from minidist import ops
from tests.cuda.cases.numbers import BF16, numbers, rounding, unaligned_at, unset, wide
from tests.cuda.kernel_cases import TINY, U32, Case, Want


def swiglu_reference(gate, up, h, n):
    """exp is off by 4 u and so is the sigmoid, which may also be flushed to zero."""
    gate64, up64 = wide(gate, up)
    want = ops.swiglu(gate64, up64)
    allowed = (10 * U32 + rounding(gate.dtype)) * abs(want) + TINY * (1 + abs(gate64 * up64))
    return {2: Want(want, allowed)}


def swiglu_backward_reference(dh, gate, up, dgate, dup, n):
    dh64, gate64, up64 = wide(dh, gate, up)
    want_gate, want_up = ops.swiglu_backward(dh64, gate64, up64)
    s = 1 / (1 + np.exp(-gate64))
    stored = rounding(gate.dtype)
    errors = abs(dh64 * up64) * (20 * U32 * (s + abs(gate64 * s)) + TINY * (1 + abs(gate64)))
    return {
        3: Want(want_gate, errors + stored * abs(want_gate) + TINY),
        4: Want(want_up, (10 * U32 + stored) * abs(want_up) + TINY * (1 + abs(dh64 * gate64))),
    }


def silu_reference(gate, silu, n):
    return {1: swiglu_reference(gate, np.ones_like(gate), silu, n)[2]}


def multiply_reference(a, b, out, n):
    want = np.multiply(*wide(a, b))
    return {2: Want(want, U32 * abs(want) + TINY)}


def gates(n: int, dtype: Any) -> np.ndarray:
    """Return gates, with some that are wide open, shut, and so far shut that exp overflows."""
    x = numbers(n, scale=2.0)
    x[1::7], x[2::7], x[3::7] = 90.0, -90.0, 0.0
    return x.astype(dtype)


def swiglu_cases() -> Iterator[Case]:
    for n in (0, 1, 3, 64, 301):
        for step, dtype in ((s, t) for s in ("one", "four") for t in (np.dtype(np.float32), BF16)):
            yield from swiglu_steps(n, step, dtype)
        yield Case(
            f"silu_f32 of {n}",
            "swiglu.cu",
            "silu_f32",
            (2,),
            (33,),
            lambda n=n: [gates(n, np.float32), unset(n), n],
            silu_reference,
        )
        yield Case(
            f"multiply_f32 of {n}",
            "swiglu.cu",
            "multiply_f32",
            (2,),
            (33,),
            lambda n=n: [numbers(n), numbers(n, seed=1), unset(n), n],
            multiply_reference,
        )


def swiglu_steps(n: int, step: str, dtype: np.dtype) -> Iterator[Case]:
    name = f"{step}_{'bf16' if dtype == BF16 else 'f32'}"

    def forward():
        return [gates(n, dtype), numbers(n, seed=1, dtype=dtype), unset(n, dtype=dtype), n]

    def backward():
        return [
            numbers(n, seed=2, dtype=dtype), gates(n, dtype), numbers(n, seed=1, dtype=dtype),
            unset(n, dtype=dtype), unset(n, dtype=dtype), n,
        ]  # fmt: skip

    for kernel, arguments, reference, arrays in (
        (f"swiglu_{name}", forward, swiglu_reference, 3),
        (f"swiglu_backward_{name}", backward, swiglu_backward_reference, 5),
    ):
        views = range(arrays) if n == 64 and step == "four" else ()
        for at in (None, *views):
            where = "" if at is None else f", argument {at} unaligned"
            yield Case(
                f"{kernel} of {n}{where}",
                "swiglu.cu",
                kernel,
                (2,),
                (50,),
                lambda at=at, arguments=arguments: unaligned_at(at, arguments()),
                reference,
            )
