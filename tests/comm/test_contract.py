"""The contract of all worlds on in-process ranks; `test_mpi` runs the same list over MPI."""

import pytest

from minidist.comm import run
from minidist.testing import contract


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_in_process_ranks_keep_the_contract(check, ranks):
    for seed in range(3):
        for synchronous in (False, True):
            if synchronous and check is contract.halves_of_an_exchange:
                continue  # a rank sends to itself before it receives
            run(check, ranks=ranks, seed=seed, synchronous=synchronous)
