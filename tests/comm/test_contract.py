"""The contract of all worlds on in-process ranks; `test_mpi` runs the same list over MPI."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidist.comm import run
from minidist.testing import contract


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_in_process_ranks_keep_the_contract(check, ranks):
    for seed in range(3):
        for synchronous in (False, True):
            keep(check, ranks=ranks, seed=seed, synchronous=synchronous)


@given(st.sampled_from(contract.CHECKS), st.integers(1, 6), st.integers(0, 10**6), st.booleans())
def test_they_keep_it_in_any_order_of_events(check, ranks, seed, synchronous):
    keep(check, ranks=ranks, seed=seed, synchronous=synchronous)


def keep(check, synchronous, **world):
    if check is contract.halves_of_an_exchange:
        synchronous = False  # a rank sends to itself before it receives
    run(check, synchronous=synchronous, **world)
