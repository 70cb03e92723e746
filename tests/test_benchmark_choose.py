"""The benchmark of the chooser: exact on described links, complete on real ranks."""

import importlib
import json
import math
import sys
import types
from pathlib import Path

import pytest

from minidist.collectives import choose as chooser
from minidist.network import measured
from minidist.testing.mutants import mutate

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CHOOSE = str(BENCHMARKS / "choose.py")
NAMES = ["timing", "table", "problems", "measuring", "choose"]
DESCRIBED = ["--nodes=2,2", "--inside=1,1024", "--across=256,8", "-b=8", "-e=4K", "-f=8"]


@pytest.fixture
def scripts(monkeypatch):
    """The benchmarks, which are files beside each other and no package; these load no MPI."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield types.SimpleNamespace(**{name: importlib.import_module(name) for name in NAMES})
    for name in NAMES:
        del sys.modules[name]


@pytest.fixture
def choose(scripts, monkeypatch, capsys, tmp_path):
    """Run benchmarks/choose.py on described links; return what it prints, and its JSON."""
    monkeypatch.setattr(scripts.choose, "launched", lambda: False)

    def choose(*words, status=0):
        file = tmp_path / "choose.json"
        assert scripts.choose.main([*words, "--json", str(file)]) == status
        written = json.loads(file.read_text("utf-8")) if status == 0 else None
        return capsys.readouterr(), written

    return choose


def test_chosen_beside_best_on_described_links(choose):
    printed, written = choose(*DESCRIBED)
    assert choose(*DESCRIBED)[0] == printed  # the clock is virtual
    assert (written["clock"], written["network"]["hosts"]) == ("virtual", [0, 0, 1, 1])
    rows = written["rows"]
    assert [(row["size"], row["chosen"]) for row in rows] == [
        (8, "doubling"),
        (64, "doubling"),
        (512, "doubling"),
        (4096, "hierarchical"),
    ]
    for row in rows:
        times = {name: median for name, (median, _, _) in row["measured"].items()}
        assert set(times) == set(row["predicted"]) >= {"ring", "tree", "hierarchical"}
        assert times[row["best"]] == min(times.values())
        assert row["ratio"] == [times[row["chosen"]] / times[row["best"]]] * 3
        assert row["wrong"] == 0
    # Doubling inside the node, then two messages through one card: latency, and twice the bytes.
    assert rows[0]["measured"]["doubling"][0] == 1 + 8 / 1024 + 256 + 2 * 8 / 8
    lines = printed.out.splitlines()
    table = [line.split() for line in lines if not line.startswith("#")]
    assert [row[:2] for row in table] == [[str(row["size"]), row["chosen"]] for row in rows]
    product = math.prod(row["ratio"][0] for row in rows)
    assert f"# chosen / best: {product ** (1 / 4):.2f} in the geometric mean, " in printed.out


def test_a_bad_choice_shows(scripts, choose, monkeypatch):
    worst = mutate(chooser.choose, "min(seconds", "max(seconds")
    monkeypatch.setattr(scripts.choose, "choose", worst)
    printed, written = choose(*DESCRIBED)
    worst = max(written["rows"], key=lambda row: row["ratio"][0])
    assert worst["ratio"][0] > 3
    assert f"{worst['ratio'][0]:.2f} at worst ({worst['size']} B); the best itself at 0 of 4" in (
        printed.out
    )


def test_a_wrong_candidate_fails_the_run(scripts, choose, monkeypatch):
    def ring(comm, x, out, op):
        scripts.choose.FLAT["tree"](comm, x, out, op)
        x[0] += comm.rank == 3
        return x

    broken = {**scripts.choose.FLAT, "ring": ring}
    monkeypatch.setattr(scripts.choose, "FLAT", broken)
    printed = choose(*DESCRIBED, status=1)[0]
    assert "# Out of bounds values : 4 FAILED" in printed.out  # one at each size


def test_chosen_beside_best_on_real_ranks(mpirun, tmp_path):
    flags = ["-b=6", "-e=1K", "-f=100", "-n=2", "-w=0", "--json=out.json"]
    done = mpirun([CHOOSE, *flags], env={"MINIDIST_CACHE": str(tmp_path)})
    assert "# links not measured, round figures: run minidist measure-links" in done.stdout
    written = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert (written["clock"], len(written["network"]["hosts"])) == ("real", 2)
    assert [row["size"] for row in written["rows"]] == [4, 600]
    for row in written["rows"]:
        assert set(row["measured"]) == set(row["predicted"]) == set(chooser.FLAT)
        assert {row["chosen"], row["best"]} <= set(row["measured"])
        assert row["wrong"] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "start ranks (minidist launch -n 4 -- benchmarks/choose.py), or describe some"),
        ("--nodes 1", "one rank has nothing to reduce"),
        ("--nodes 2,0", "'0' is no number from 1 up"),
        ("--nodes 2 --inside 1", "'1' is no link: give seconds,bytes/s as 1e-6,5e9"),
        ("--nodes 2 --across 1,0", "'1,0' is no link"),
        ("--nodes 2 --across inf,1", "'inf,1' is no link"),
        ("--nodes 2 -b 8 -e 4", "the smallest size is beyond the largest"),
    ],
)
def test_what_cannot_be_chosen_is_refused(choose, words, sentence):
    printed = choose(*words.split(), status=2)[0]
    assert printed.err.startswith("choose.py: ")
    assert sentence in printed.err


def test_a_damaged_cache_is_one_sentence_on_real_ranks(mpirun, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path))
    measured.cache_file().write_text("{}")
    done = mpirun([CHOOSE], check=False)
    assert done.returncode == 2
    assert done.stderr.count("choose.py: ") == 1
    assert "run minidist measure-links" in done.stderr
    assert "Traceback" not in done.stderr
