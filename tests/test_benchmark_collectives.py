"""The all-reduce benchmark: right columns, JSON for plots, a non-zero status for wrong sums."""

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPT = str(BENCHMARKS / "all_reduce.py")
SMALL = ["-b", "64", "-e", "4K", "-f", "64", "-n", "3", "-w", "0"]


@pytest.fixture
def modules(monkeypatch):
    """The helpers of the benchmarks, which are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import table
    import timing

    yield table, timing
    del sys.modules["table"], sys.modules["timing"]


def test_it_prints_the_columns_of_nccl_tests_and_writes_json(mpirun, tmp_path):
    done = mpirun([SCRIPT, *SMALL, "-d", "int32", "--json", "out.json"], ranks=3)
    data = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [(row[0], row[1], row[-1]) for row in data] == [
        (size, count, way)
        for size, count in (("64", "16"), ("4096", "1024"))
        for way in ("minidist", "mpi", "copy")
    ]
    for row in data:
        size, _, kind, _, root, time, algbw, busbw, wrong = row[:9]
        assert (kind, root, wrong) == ("int32", "-1", "N/A" if row[-1] == "copy" else "0")
        assert float(algbw) == pytest.approx(int(size) / float(time) / 1e3, rel=0.05, abs=0.01)
        factor = 1 if row[-1] == "copy" else 4 / 3
        assert float(busbw) == pytest.approx(float(algbw) * factor, rel=0.05, abs=0.02)
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert written["ranks"] == 3
    assert [row["variant"] for row in written["rows"]] == [row[-1] for row in data]


WRONG = f"""
import runpy, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from minidist.collectives import ring
from minidist.collectives.steps import Collective
from minidist.testing.mutants import mutate, rebind

ring.all_reduce = rebind(
    ring.all_reduce, all_gather=mutate(ring.all_gather, "range(n - 1)", "range(n - 2)")
)
sys.argv = [{SCRIPT!r}, "-b", "400", "-e", "400", "-n", "2", "-w", "0", "--untuned"]
runpy.run_path({SCRIPT!r}, run_name="__main__")
"""


def test_wrong_sums_are_counted_and_fail_the_run(mpirun):
    done = mpirun(WRONG, ranks=3, check=False)
    assert done.returncode == 1
    assert "# Out of bounds values : " in done.stdout
    assert "FAILED" in done.stdout


def test_numbers_fit_their_columns(modules):
    table, _ = modules
    assert [table.fit(x, 7) for x in (812.4, 33853.27, 1234567.8, 123456789.0)] == [
        "812.40",
        "33853.3",
        "1234568",
        "1.2e+08",
    ]
    assert table.sizes(8, 100, 4) == [8, 32]
    assert [table.number(t) for t in ("8", "64K", "1.5M")] == [8, 65536, 3 << 19]


def test_every_variant_is_timed_equally_often_in_changing_order(modules):
    _, timing = modules
    calls = []
    variants = {
        name: timing.Variant(lambda: None, lambda name=name: calls.append(name)) for name in "abc"
    }
    times = timing.interleave(variants, 9, 1, lambda: None, lambda seconds: seconds)
    rounds = ["".join(calls[i : i + 3]) for i in range(0, 30, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len(set(rounds)) > 1
    assert set(times) == set("abc")
    assert timing.summary([1.0, 2.0, 3.0, 4.0, 100.0]).median == 3.0
