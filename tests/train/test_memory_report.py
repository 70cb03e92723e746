"""The end of a run says for each kind of memory what it should be and what it was."""

import re

import pytest

from minidist.comm import run
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan.activations import Activations
from minidist.testing.mutants import mutate
from minidist.train.memory_report import Row, memory_report
from minidist.train.optimizer import AdamW
from minidist.train.step import Step
from tests.parallel.stubs import odd_model
from tests.tiers import fast_and_slow
from tests.train.runs import train

pytestmark = pytest.mark.usefixtures("folder")

LINE = re.compile(r"^  (\w+) +([\d,]+) +([\d,]+) +([\d,]+)  (.*)$", re.M)

RUNS = [
    {"zero": 0, "in_process": 3, "batch": 7, "dtype": "float32"},
    {"zero": 2, "in_process": 3, "batch": 7, "micro_batches": 3, "recompute": "unit"},
    {"zero": 3, "in_process": 2, "dtype": "bfloat16", "recompute": "attention", "layers": 2},
    {"zero": 1, "in_process": 5, "batch": 3, "dtype": "float16"},
    {"zero": 3, "in_process": 1, "micro_batches": 9, "grad_dtype": "bfloat16", "dtype": "float32"},
    {"zero": 0, "in_process": 1, "optimizer": "sgd", "recompute": "unit", "hidden": 3},
    {"zero": 2, "in_process": 2, "bucket_mb": 0.01, "tied": None, "layers": 3},
]


def table(out):
    """What was printed: kind -> (formula, held, at most, comparison)."""
    return {
        kind: (*(int(n.replace(",", "")) for n in numbers), told)
        for kind, *numbers, told in LINE.findall(out)
    }


@pytest.mark.parametrize("flags", fast_and_slow(RUNS, 3))
def test_state_and_activations_are_exact_and_buffers_below_their_bound(flags, capsys):
    flags = dict(flags)
    tied = ["--tied"] if "tied" in flags and flags.pop("tied", 1) is None else []
    assert train(*tied, steps=2, **flags) == 0
    found = table(capsys.readouterr().out)
    assert list(found) == [
        "parameters", "gradients", "masters", "moments", "activations", "buffers",
    ]  # fmt: skip
    for kind, (formula, held, peak, told) in found.items():
        if kind == "buffers":
            assert peak <= formula
            assert told in ("exactly", "below the bound")
        else:
            assert (peak, told) == (formula, "exactly"), kind
        assert held == (0 if kind in ("activations", "buffers") else formula)
    assert found["activations"][2] > 0


def test_activations_that_are_not_let_go_are_seen(capsys, monkeypatch):
    broken = mutate(Step, "kept + self._again)", "kept)")
    monkeypatch.setattr("minidist.train.trainer.Step", broken)
    assert train(steps=2, recompute="unit", micro_batches=2) == 0
    assert table(capsys.readouterr().out)["activations"][3].startswith("NOT equal, by ")


@pytest.mark.parametrize(
    ("kind", "peak", "told"),
    [
        ("buffers", 9, "below the bound"),
        ("buffers", 10, "exactly"),
        ("buffers", 12, "NOT equal, by 2"),
        ("moments", 9, "NOT equal, by -1"),
        ("moments", 1010, "NOT equal, by 1,000"),
    ],
)
def test_the_comparison_in_words(kind, peak, told):
    assert Row(kind, 10, 0, peak).told == told


def test_state_that_nobody_asked_for_is_told():
    def program(comm):
        sync = Zero(odd_model(comm), AdamW(), Mesh(comm), 1, dtype="float32")
        sync.ledger.take("masters", 4)
        nothing = Activations(0, 0, 8, 1, 1, 8, 8, 8, layers=0)
        return memory_report(sync, nothing)

    for report in run(program, ranks=2):
        assert "NOT equal, by 4" in next(t for t in report.splitlines() if "masters" in t)
        assert report.count("exactly") == 5
