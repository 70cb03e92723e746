"""Numbers for people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.errors import ConfigError
from minidist.testing.mutants import mutate
from minidist.view.units import even_step, readable, ticks


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 B"),
        (8, "bytes", "8 B"),
        (1023, "bytes", "1023 B"),
        (1024, "bytes", "1 KiB"),
        (1536, "bytes", "1.5 KiB"),
        (2**20 - 1, "bytes", "1 MiB"),
        (2**60, "bytes", "1048576 TiB"),
        (1e-6, "seconds", "1 µs"),
        (1.234e-5, "seconds", "12.3 µs"),
        (9.9996e-4, "seconds", "1 ms"),
        (5e-15, "seconds", "0.005 ps"),
        (2, "seconds", "2 s"),
        (5.2e9, "bytes/s", "5.2 GB/s"),
        (1000, "", "1k"),
        (-1500, "", "-1.5k"),
    ],
)
def test_readable(value, unit, text):
    assert readable(value, unit) == text


units = st.sampled_from(["bytes", "seconds", ""])
values = st.floats(1e-9, 1e15)


def check_ticks(ticks, low, high, unit):
    found = ticks(low, high, unit)
    assert found == sorted(set(found))
    assert found[0] <= low * (1 + 1e-6), "none below"
    assert found[-1] >= high * (1 - 1e-6), "none above"
    assert len(found) <= 12


@given(values, values, units)
def test_ticks_are_around_the_values_and_few(one, other, unit):
    check_ticks(ticks, min(one, other), max(one, other), unit)


def test_the_check_rejects_ticks_that_stop_short():
    short = mutate(ticks, "last + 1", "last")
    with pytest.raises(AssertionError, match="none above"):
        check_ticks(short, 3, 3000, "")


def test_a_unit_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="unit 'kg' is none of"):
        readable(1.0, "kg")


def test_even_steps_are_round():
    assert [even_step(v) for v in (1, 5, 7, 30, 4000)] == [0.2, 1, 2, 10, 1000]
    assert even_step(14e6, "bytes") == 2**21
    assert even_step(1, "bytes") == 1
