"""Hypothesis strategies that tests and lessons share: shapes, arrays, places in a run.

Arrays hold *distinct* values. With all ones, or with repeated values, a swapped index or a wrong
permutation computes the right number and the test sees nothing.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from minidist.nn import At

seeds = st.integers(0, 2**32 - 1)
"""Seeds of a NumPy generator."""


def sizes(most: int = 5) -> st.SearchStrategy[int]:
    """Draw a length, 0 and 1 included."""
    return st.integers(0, most)


def leading(axes: int = 3, most: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw leading axes: none, some, some of them empty."""
    return st.lists(sizes(most), max_size=axes).map(tuple)


def shapes(axes: int = 3, most: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw a shape of a parameter: any number of axes, 0 axes and empty ones included."""
    return leading(axes, most)


@st.composite
def arrays(draw: Any, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Draw an array of distinct values of about unit size."""
    return distinct(np.random.default_rng(draw(seeds)), shape, dtype)


def distinct(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64
) -> np.ndarray:
    """Return different values in [-1.5, 1.5], in random order, none of them 0."""
    count = int(np.prod(shape))
    values = np.linspace(-1.5, 1.5, 2 * count)[1::2] if count else np.empty(0)
    return rng.permutation(values).reshape(shape).astype(dtype)


@st.composite
def boxes(draw: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Draw a box inside a shape; it may be empty."""
    cuts = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    return tuple((a, b) for a, b in cuts)


@st.composite
def places(draw: Any, samples: int, positions: int, train: bool = True) -> At:
    """Draw an `At`: increasing positions and distinct samples, starting anywhere."""
    first, start = draw(st.integers(0, 1000)), draw(st.integers(0, 50))
    step = draw(st.integers(0, 100))
    return At(step, train, first + np.arange(samples), start + np.arange(positions))
