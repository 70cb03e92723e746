"""The yardsticks: what simple predictors make of a text, and what a step sends."""

from collections import Counter
from itertools import pairwise
from math import log

import numpy as np
import pytest

from minidist.comm import run
from minidist.nn import At, Parameter
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train import baselines as module
from minidist.train.baselines import baselines
from minidist.train.corpus import Corpus, Text, read_text
from minidist.train.optimizer import SGD
from minidist.train.report import (
    Sent,
    Turns,
    loss_report,
    loss_rows,
    parameter_bytes,
    traffic_report,
    traffic_rows,
)


def by_name(rows):
    return {row.name: (row.whole, row.validation) for row in rows}


def test_the_plays_have_the_known_numbers():
    """zlib -9 needs 2.21 nats a byte and xz 1.86: the marks that the default run is held to."""
    text = read_text()
    found = by_name(baselines(text.data, 932835))
    want = {
        "uniform over 256": (5.545, 5.545),
        "byte frequencies": (3.306, 3.372),
        "previous byte": (2.486, 2.571),
        "zlib -9": (2.210, 2.249),
        "xz": (1.858, 1.840),
    }
    assert found.keys() == want.keys()
    for name, values in want.items():
        assert found[name] == pytest.approx(values, abs=2e-3), name


def check_tables(kind):
    """Against counting with dictionaries, byte by byte."""
    data, train = b"abracadabra, the cat sat on the abacus", 25
    found = by_name(kind(data, train))
    n = len(data)
    ones, pairs = Counter(data), Counter(pairwise(data))
    before = Counter(data[:-1])
    entropy = -sum(c / n * log(c / n) for c in ones.values())
    cond = -sum(c / (n - 1) * log(c / before[a]) for (a, _), c in pairs.items())
    learned = Counter(data[:train])
    cost = [-log((learned[b] + 1) / (train + 256)) for b in data[train:]]
    seen, of = Counter(pairwise(data[:train])), Counter(data[: train - 1])
    steps = list(pairwise(data))[train - 1 :]
    cost2 = [-log((seen[a, b] + 1) / (of[a] + 256)) for a, b in steps]
    assert found["byte frequencies"] == pytest.approx((entropy, np.mean(cost)))
    assert found["previous byte"] == pytest.approx((cond, np.mean(cost2)))


def test_tables_are_what_counting_gives():
    check_tables(baselines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count(cells[:train]) + 1", "count(cells) + 1"),
        ("count(cells[train:])", "count(cells[:train])"),
        ("axis=1", "axis=0"),
    ],
)
def test_wrong_tables_are_seen(old, new):
    target = module._table if "cells" in old else module._nats
    broken = mutate(target, old, new)
    names = {target.__name__: broken}
    if target is module._nats:
        names = {
            "_table": mutate(module._table, "_nats(count(cells), ", "_nats(count(cells),", **names)
        }
    with pytest.raises(AssertionError):
        check_tables(mutate(baselines, "train - 1", "train -1", **names))


def test_a_long_text_is_compressed_at_its_end(monkeypatch):
    monkeypatch.setattr(module, "COMPRESSED_AT_MOST", 50)
    data = bytes(range(100))
    assert module._compressed(data, 90, lambda b: b) == pytest.approx((log(256), log(256)))
    assert module._compressed(data, 10, lambda b: b) == pytest.approx(
        (log(256), 50 / 90 * log(256))
    )


def test_the_loss_stands_in_its_place():
    text = Text("t", bytes(i * i % 7 + 65 for i in range(3000)))
    rows = loss_rows(text, Corpus(text, 8, 0), 1.5)
    assert [row.validation for row in rows] == sorted((r.validation for r in rows), reverse=True)
    lines = loss_report(rows).split("\n")
    names = [line[:18].strip() for line in lines[2:-1]]
    assert names[0] == "uniform over 256"
    assert "this model" in names
    assert next(line for line in lines if "this model" in line).split() == [
        "this", "model", "1.500", "(2.16)", "-",
    ]  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("stage", range(4))
def test_traffic_is_measured_beside_the_formula(ranks, stage):
    """A tied table of 10 elements and a matrix of 6; three steps of two micro-batches."""

    def program(comm, lost):
        own = [Parameter("w", (10,), init=1.0), Parameter("m", (2, 3), init=1.0)]
        units = [Stub(own[:1]), Stub(own)]
        sync = Zero(units, SGD(), Mesh(comm), stage, dtype=np.float64)
        at = At(0, True, np.arange(1), np.arange(1))
        for number in range(3):
            sync.begin()
            for last in (False, True):
                for unit in sync.units:
                    unit.forward(1.0, at)
                for index in (1, 0):
                    sync.units[index].backward(None, 1.0)
                    sync.ready(index, last)
            sync.finish()
            sync.update(0.1, number + 1)
        if stage in (1, 2):
            list(sync.gathered())
        by = comm.traffic.by
        sent = Sent(by[GRADIENTS].bytes - lost, by[PARAMETERS].bytes)
        turns = Turns(3, 0, 2, False)
        return traffic_report(sync, turns, traffic_rows(sync, sent, turns))

    gradients = {0: 2 * 3, 1: 3, 2: 2 * 3, 3: 2 * 3}[stage] * 16 * 8 * (ranks - 1)
    parameters = {0: 0, 1: 3 * 16, 2: 3 * 16, 3: 12 * (2 * 10 + 6)}[stage] * 8 * (ranks - 1)
    text = run(program, 0, ranks=ranks)[0]
    assert text.count("exactly") == 2
    for number in (gradients, parameters):
        assert f"formula {number:18,} bytes, exactly" in text
    assert "NOT equal" in run(program, 8, ranks=ranks)[0]


class Stub:
    """A unit that owns parameters and computes nothing."""

    def __init__(self, own):
        self.own = own

    def parameters(self):
        return self.own

    def forward(self, x, at):
        return x, None

    def backward(self, ctx, dy, later=None):
        for p in self.own:
            p.accumulate(np.ones(p.local))
        return dy


def test_a_resumed_run_gathers_once_more_and_a_skipped_step_nothing():
    def program(comm):
        sync = Zero([Stub([Parameter("w", (10,))])], SGD(), Mesh(comm), 1, dtype=np.float64)
        return parameter_bytes(sync, Turns(5, 2, 1, True))

    assert run(program, ranks=2) == [(5 - 2 + 1) * 80] * 2
