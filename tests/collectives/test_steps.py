"""Whoever drives a body refuses what it cannot drive."""

import traceback

import numpy as np
import pytest

from minidist.collectives.steps import Collective, Exchange
from minidist.comm import run
from minidist.errors import ConfigError


@Collective
def bare(comm, x):
    yield Exchange(comm)
    yield
    return x


@pytest.mark.parametrize("drive", [bare, lambda comm, x: bare.start(comm, x).wait()])
def test_a_yield_without_an_exchange_is_refused(drive):
    words = r"rank 0, bare: a body yields Exchange\(comm, \.\.\.\) and nothing else; .* gives None"
    with pytest.raises(ConfigError, match=words):
        run(drive, np.zeros(2), ranks=1)


def test_it_is_refused_at_the_yield():
    with pytest.raises(ConfigError) as caught:
        run(bare, np.zeros(2), ranks=1)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.line for frame in frames if frame.name == "bare"] == ["yield"]


def test_a_started_body_that_is_refused_is_no_longer_in_flight():
    def program(comm):
        with pytest.raises(ConfigError):
            bare.start(comm, np.zeros(2))
        return len(comm.state.started)

    assert run(program, ranks=1) == [0]
