"""The benchmarks of the collectives: right columns, right answers, and wrong ones are counted."""

import importlib
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from minidist.comm import run

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPT = str(BENCHMARKS / "collectives.py")
NAMES = ["timing", "table", "problems", "measuring"]

WAYS = {
    "all_reduce": ["ring", "segmented", "halving", "doubling", "tree", "hierarchical", "server"],
    "reduce_scatter": ["ring", "segmented"],
    "all_gather": ["ring"],
    "broadcast": ["tree"],
    "reduce": ["tree"],
    "all_to_all": ["pairwise"],
    "gather": ["direct"],
    "scatter": ["direct"],
}
FACTORS = dict.fromkeys(WAYS, 2 / 3) | {"all_reduce": 4 / 3, "broadcast": 1, "reduce": 1}
ONE_MODE = {"broadcast": "out_of_place", "all_to_all": "in_place"}  # the mode that is not there
ONE_MODE |= dict.fromkeys(("gather", "scatter"), "in_place")


@pytest.fixture
def scripts(monkeypatch):
    """The benchmarks, which are files beside each other and no package; these load no MPI."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield types.SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        del sys.modules[name]


# --- what is printed ------------------------------------------------------------------------------


def test_all_collectives_in_the_columns_of_nccl_tests_and_as_json(mpirun, tmp_path):
    flags = ["-b=41", "-e=4100", "-f=100", "-n=2", "-w=0", "-d=int32", "-r=1"]
    flags += ["--per-node=2", "--json=out.json"]
    done = mpirun([SCRIPT, "all", *flags], ranks=3)  # neither size is a multiple of 3 elements
    assert "# Out of bounds values : 0 OK" in done.stdout
    data = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert (written["ranks"], written["command"].split()[1]) == (3, "all")
    assert [(row["collective"], row["variant"], row["size"]) for row in written["rows"]] == [
        (name, way, size)
        for name, ways in WAYS.items()
        for size in (40, 4100)
        for way in [*ways, "mpi", "copy"]
    ]
    for row, columns in zip(written["rows"], data, strict=True):
        check_row(row, columns)


def check_row(row, columns):
    """One row of the JSON and of the table: both say the same, and what they must."""
    name, way = row["collective"], row["variant"]
    copy, reduces = way == "copy", name in ("all_reduce", "reduce_scatter", "reduce")
    redop = "sum" if reduces and not copy else "none"
    root = 1 if name in ("broadcast", "reduce", "gather", "scatter") and not copy else -1
    assert (row["count"], row["type"]) == (row["size"] // 4, "int32")
    assert (row["redop"], row["root"]) == (redop, root)
    start = [row["size"], row["count"], "int32", redop, root]
    assert (columns[:5], columns[-1]) == ([str(word) for word in start], way)
    for mode, words in (("out_of_place", columns[5:9]), ("in_place", columns[9:13])):
        cell = row[mode]
        assert (cell is None) == (mode == ("in_place" if copy else ONE_MODE.get(name)))
        if cell is None:
            assert words == ["N/A"] * 4
            continue
        median, low, high = cell["times"]
        assert low <= median <= high
        assert cell["algbw"] == pytest.approx(row["size"] / median / 1e9)
        assert cell["busbw"] == pytest.approx(cell["algbw"] * (1 if copy else FACTORS[name]))
        assert (cell["wrong"], words[3]) == ((None, "N/A") if copy else (0, "0"))
        assert (cell["speed"] is None) == (way in ("mpi", "copy"))
        assert float(words[0]) == pytest.approx(median * 1e6, rel=0.01, abs=0.01)


def test_only_what_is_asked_for(mpirun):
    flags = ["--ways=tree", "-b=64", "-e=64", "-n=1", "-w=0", "-d=bfloat16", "-o=max", "-c=0"]
    done = mpirun([SCRIPT, "reduce", "all_gather", *flags])
    assert "# MPI has no bfloat16: its own collectives are left out" in done.stdout
    data = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
    assert [(row[3], row[8], row[12], row[-1]) for row in data] == [
        ("max", "N/A", "N/A", "tree"),
        ("none", "N/A", "N/A", "copy"),
        ("none", "N/A", "N/A", "copy"),  # all_gather has no tree
    ]
    assert "speed" not in done.stdout  # there is nothing to compare with


def test_numbers_fit_their_columns(scripts):
    assert [scripts.table.fit(x, 7) for x in (812.4, 33853.27, 1234567.8, 123456789.0)] == [
        "812.40",
        "33853.3",
        "1234568",
        "1.2e+08",
    ]
    assert scripts.table.sizes(8, 100, 4) == [8, 32]
    assert [scripts.table.number(t) for t in ("8", "64K", "1.5M")] == [8, 65536, 3 << 19]


def test_every_variant_is_timed_equally_often_in_changing_order(scripts):
    timing, calls, ticks = scripts.timing, [], iter(range(1000))
    variants = {
        name: timing.Variant(lambda: None, lambda name=name: calls.append(name)) for name in "abc"
    }

    def clock():
        return float(next(ticks))

    times = timing.rounds(variants, 9, 1, lambda: None, lambda seconds: seconds, 1, clock)
    rounds = ["".join(calls[i : i + 3]) for i in range(0, 30, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len(set(rounds)) > 1
    assert times == {name: [1.0] * 9 for name in "abc"}
    assert timing.summary([1.0, 2.0, 3.0, 4.0, 100.0]).median == 3.0


# --- right and wrong answers ----------------------------------------------------------------------

ANSWERS = f"""
import json, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
import numpy as np
from measuring import Setting
from problems import KINDS, Problem
from ways import MPIS, OURS
from minidist.collectives import hierarchical
from minidist.comm import world
from minidist.device import Device

comm = world()
setting = Setting(comm, Device("cpu", 0, np), 1, 0)
nodes = hierarchical.nodes(comm, [0, 0, 1])
last = comm.size - 1

def nothing(way):
    return lambda p, x, out: lambda: x if out is None else out

def spoilt(way):
    def other(p, x, out):
        call = way(p, x, out)
        def wrong():
            got = call()
            if comm.rank == last:  # it is the root
                got[-1] += 1
            return got
        return call and wrong
    return other

found = []
for name, kind in KINDS.items():
    for count, dtype, op in ((1, "f4", "sum"), (1000, "f2", "max"), (1001, "u1", "sum")):
        p = Problem(comm, count, np.dtype(dtype), op, last, nodes)
        ways = {{**OURS[name], "mpi": MPIS[name]}}
        right = setting.take(kind, p, ways)[1]
        lazy = setting.take(kind, p, {{"nothing": nothing(None)}})[1]
        ways = {{way: spoilt(call) for way, call in ways.items()}} if count > 1 else {{}}
        broken = setting.take(kind, p, ways)[1]
        found.append([name, count, *(list(w.values()) for w in (right, lazy, broken))])
if comm.rank == 0:
    print(json.dumps(found))
"""


def test_right_answers_pass_and_one_wrong_element_is_one(mpirun):
    found = json.loads(mpirun(ANSWERS, ranks=3).stdout)
    assert {name for name, *_ in found} == set(WAYS)
    for name, count, right, lazy, broken in found:
        modes = 1 if name in ONE_MODE else 2
        assert right == [0] * modes * (len(WAYS[name]) + 1), (name, count)
        assert (len(lazy), min(lazy) > 0) == (modes, True), (name, count)
        assert broken == ([1] * len(right) if count > 1 else []), (name, count)


def test_pieces_that_are_mixed_up_are_wrong(scripts):
    problems, measuring = scripts.problems, scripts.measuring

    def program(comm):
        p = problems.Problem(comm, 3 * 1024, np.dtype("f4"))
        whole = problems.collected(p)
        assert measuring.differing(whole, whole) == 0
        return measuring.differing(np.roll(whole, 1024), whole)

    assert min(run(program, ranks=3)) > 2000


def test_answers_of_another_length_are_wrong(scripts):
    differing, want = scripts.measuring.differing, np.ones(4)
    assert [differing(got, want) for got in (None, np.ones(3), np.ones((2, 2)))] == [4, 4, 0]
    assert differing(np.ones(4), None) == 0  # a rank that gets nothing


WRONG = f"""
import runpy, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from minidist.collectives import ring
from minidist.testing.mutants import mutate, rebind

ring.all_reduce = rebind(
    ring.all_reduce, all_gather=mutate(ring.all_gather, "range(n - 1)", "range(n - 2)")
)
sys.argv = [{SCRIPT!r}, *"-b 400 -e 400 -n 2 -w 0 --untuned --ways ring,mpi".split()]
runpy.run_path({SCRIPT!r}, run_name="__main__")
"""


def test_wrong_sums_fail_the_run(mpirun):
    done = mpirun(WRONG, ranks=3, check=False)
    assert done.returncode == 1
    assert "# Out of bounds values : " in done.stdout
    assert "FAILED" in done.stdout


# --- refusals -------------------------------------------------------------------------------------

REFUSED = {
    "all_reduces": "no collective 'all_reduces': there are all_reduce, reduce_scatter",
    "-d bfloat16 --ways mpi": "no way 'mpi' here",
    "-d complex": "argument -d: invalid choice: 'complex'",
    "-r 2": "-r 2: the root is one of the ranks 0 to 1",
    "-r -1": "the root is one of",
    "-b 2K -e 1K": "-b 2048 -e 1024: the smallest size is beyond the largest",
    "-b -8": "argument -b: ",
    "-b nan": "'nan' is no size: give bytes, as in 8, 64K or 16M",
    "-f 1": "argument -f: '1' is no number from 2 up",
    "-n 0": "argument -n: '0' is no number from 1 up",
    "all_gather --ways tree": "no way 'tree' here, only ring, mpi",
    "--against nccl --ways nccl": "no way 'nccl' here",
}
REFUSALS = f"""
import json, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from collectives import Bench, arguments
from minidist.comm import world
from minidist.errors import ConfigError

comm, said = world(), {{}}
for words in {list(REFUSED)!r}:
    try:
        Bench(comm, arguments(words.split()))
    except ConfigError as error:
        said[words] = str(error)
every = comm.gather_objects(said)
assert every == [said] * comm.size, "ranks refuse different things, so some would wait"
if comm.rank == 0:
    print(json.dumps(said), file=sys.stderr)
"""


def test_what_cannot_be_measured_is_refused_with_a_remedy(mpirun):
    said = json.loads(mpirun(REFUSALS, ranks=2).stderr.splitlines()[-1])
    assert list(said) == list(REFUSED)
    for words, sentence in REFUSED.items():
        assert sentence in said[words]


def test_a_refusal_is_one_sentence_and_status_2(mpirun):
    done = mpirun([SCRIPT, "-r", "7"], ranks=2, check=False)
    assert done.returncode == 2
    assert done.stderr.count("collectives.py: -r 7: the root is one of the ranks 0 to 1\n") == 1
    assert "Traceback" not in done.stderr
