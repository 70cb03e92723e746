"""Formulas of memory against the published table, against sums by hand, and against real arrays."""

from fractions import Fraction

import numpy as np
import pytest

from minidist import cli
from minidist.comm import run
from minidist.errors import ConfigError
from minidist.ops.half import named
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.plan import memory
from minidist.plan.memory import State, sent
from minidist.testing.mutants import mutate
from minidist.train.memory_report import state_bytes
from minidist.train.optimizer import SGD, AdamW
from tests.train.plain import Case

TABLE_1 = {
    1: ("120 120 120", "2048 2048 2048"),
    4: ("52.5 41.3 30", "896 704 512"),
    16: ("35.6 21.6 7.5", "608 368 128"),
    64: ("31.4 16.6 1.88", "536 284 32"),
    256: ("30.4 15.4 0.47", "518 263 8"),
    1024: ("30.1 15.1 0.12", "513 257 2"),
}
"""As printed: GB for 7.5B and 128B parameters, stages 1, 2, 3. Large numbers are cut off."""


def check_table(kind=State):
    state = kind("float16", "float16")
    for ranks, row in TABLE_1.items():
        for psi, cells in zip((Fraction(15, 2), Fraction(128)), row, strict=True):
            for stage, cell in enumerate(cells.split(), 1):
                unit = Fraction(1, 10 ** len(cell.partition(".")[2]))
                exact = psi * state.ideal(stage, ranks)
                assert abs(exact - Fraction(cell)) < unit, (ranks, stage, cell)
    psi = Fraction(15, 2)
    assert psi * state.ideal(1, 64) == psi * (4 + Fraction(12, 64))
    assert psi * state.ideal(2, 64) == psi * (2 + Fraction(14, 64))
    assert state.ideal(3, 7) == Fraction(16, 7)


def test_the_published_table_follows_from_the_formulas():
    check_table()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if stage >= CUT_FROM[kind] else 1", "if stage > CUT_FROM[kind] else 1"),
        ("if half else 0", "if not half else 0"),
        ("max(4, BYTES[self.dtype])", "BYTES[self.dtype]"),
    ],
)
def test_wrong_formulas_are_seen(old, new):
    with pytest.raises(AssertionError):
        check_table(mutate(State, old, new))


def test_the_largest_models_of_table_2():
    """32 GB hold 2, 7.6, 14.4 and 128 billion parameters on 64 ranks."""
    state = State("float16", "float16")
    found = [float(32 / state.ideal(stage, 64)) for stage in range(4)]
    assert np.allclose(found, [2.0, 7.642, 14.42, 128.0], rtol=1e-3)
    # two model-parallel ranks have room for twice that: 4, 15.2, 28.8 and 256 are printed
    printed = [(2.0, 7.6, 14.4, 128), (4.0, 15.2, 28.8, 256)]
    for degree, row in zip((1, 2), printed, strict=True):
        assert np.allclose([degree * x for x in found], row, rtol=6e-3), degree


def test_bytes_of_a_parameter():
    """16 in float32, never 20; 16 or 18 in half types; 32 in float64; SGD keeps no moments."""
    for names, want in {
        ("float32",): 16,
        ("bfloat16", "bfloat16"): 16,
        ("bfloat16", "float32"): 18,
        ("bfloat16",): 18,
        ("float64",): 32,
        ("float32", "bfloat16"): 14,
        ("float32", None, "sgd"): 8,
    }.items():
        assert sum(State(*names).bytes().values()) == want, names


def test_a_thousand_parameters_on_four_ranks():
    """16000, 7000, 5500 and 4000 bytes on 4 ranks: weights and gradients of 2 bytes, AdamW."""
    state = State("float16", "float16")
    found = [sum(state.held(stage, 4, 0, [1000]).values()) for stage in range(4)]
    assert found == [16000, 7000, 5500, 4000]
    each = [
        [sum(state.held(stage, 4, r, [1001]).values()) for r in range(4)] for stage in (1, 2, 3)
    ]
    assert each == [[4004 + 12 * n for n in (251, 250, 250, 250)],
                    [2002 + 14 * n for n in (251, 250, 250, 250)],
                    [16 * n for n in (251, 250, 250, 250)]]  # fmt: skip


def test_elements_sent():
    for m in (1, 3):
        whole = [sum(sent(stage, 4, m)) / Fraction(3, 4) for stage in range(4)]
        assert whole == [2, 2, m + 1, 3 * m]
        assert all(sum(sent(stage, 1, m)) == 0 for stage in range(4))


def check_state(kind, ranks, dtype, grad_dtype, rule):
    """What a rank holds of a tied decoder with frozen parts is the formula, byte for byte."""

    def program(comm, stage):
        units = Case().units(lambda at: None)
        sync = kind(units, rule(), Mesh(comm), stage, dtype=named(dtype), grad_dtype=grad_dtype)
        held = {k: sync.ledger.held[k] for k in state_bytes(sync)}
        assert held == state_bytes(sync)
        assert held["parameters"] == sum(b.stored.nbytes for b in sync.buckets)
        kept = [(b.sum if stage >= 2 else b.grad).nbytes for b in sync.buckets if b.trainable]
        assert held["gradients"] == sum(kept)
        moments = [v.nbytes for slot, _, v in sync.kept() if slot != "weights"]
        assert held["moments"] == sum(moments)
        return sum(held.values())

    return [sum(run(program, stage, ranks=ranks)) for stage in range(4)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_what_is_held_is_the_formula(ranks):
    sizes = [p.size for u in Case().units(None) for p in u.parameters() if p.trainable]
    frozen = [p.size for u in Case().units(None) for p in u.parameters() if not p.trainable]
    psi, ice = sum(sizes) - 11 * 8, sum(frozen)  # the tied table is listed twice
    for dtype, grads, each in [
        ("float32", None, (4, 4, 8)),
        ("bfloat16", named("bfloat16"), (2, 2, 12)),
        ("bfloat16", None, (2, 4, 12)),
    ]:
        p, g, k = each
        found = check_state(Zero, ranks, dtype, grads, AdamW)
        assert found == [
            ranks * (p * (psi + ice) + (g + k) * psi),
            ranks * (p * (psi + ice) + g * psi) + k * psi,
            ranks * p * (psi + ice) + (g + k) * psi,
            p * (psi + ice) + (g + k) * psi,
        ]
    check_state(Zero, ranks, "float64", None, SGD)


def test_state_that_is_held_twice_is_seen():
    class Wasteful(Zero):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.ledger.take("masters", 4)

    with pytest.raises(AssertionError):
        check_state(Wasteful, 2, "float32", None, AdamW)


def test_the_command_prints_the_published_cell(capsys):
    assert cli.main(["memory", "--params", "7.5e9", "--ranks", "64", "--zero", "2"]) == 0
    (marked,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith(">")]
    assert marked.split() == [
        ">", "ZeRO-2", "15", "0.234", "0.469", "0.938", "16.6", "29.5",
    ]  # fmt: skip


def test_the_command_prints_the_table(capsys):
    assert cli.main(["memory", "--table"]) == 0
    rows = [text.split() for text in capsys.readouterr().out.splitlines()[3:]]
    for ranks, *cells in rows:
        printed = " ".join(TABLE_1[int(ranks)]).split()
        assert len(cells) == len(printed) == 6
        for cell, want in zip(cells, printed, strict=True):
            assert Fraction(cell) == Fraction(want), (ranks, cell, want)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--params", "nan"], "--params nan: give a number"),
        (["--params", "-1"], "--params -1: give a number"),
        (["--ranks", "0"], "--ranks 0: must be at least 1"),
        (["--micro-batches", "0"], "--micro-batches 0: must be at least 1"),
        (["--table", "--ranks", "4"], "--table is the published one: leave out --ranks"),
        (["--zero", "1", "--table"], "--table is the published one: leave out --zero"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(words, told, capsys):
    assert cli.main(["memory", *words]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


def test_unknown_names_and_stages_are_refused():
    with pytest.raises(ConfigError, match="'float8': choose one of"):
        State("float8")
    with pytest.raises(ConfigError, match="no ZeRO stage 4"):
        memory.sent(4, 2)
    with pytest.raises(ConfigError, match="0 ranks hold nothing"):
        State().ideal(1, 0)
