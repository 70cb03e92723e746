"""`minidist measure-links`: measures what it can reach, says what not and why, keeps the rest."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minidist import cli, measure_links, processes
from minidist.comm import Link, by_node, run
from minidist.errors import ConfigError
from minidist.network import Measured, load, save
from minidist.network.report import Report, draw, show
from minidist.network.survey import Table
from minidist.testing.mutants import rebind

SMALL = ["-b", "64", "-e", "4M", "-f", "256", "-n", "1"]
SIZES = (64, 1 << 14, 1 << 22)
INSIDE, ACROSS = Link(2.0**-12, 2.0**24), Link(2.0**-8, 2.0**20)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


FAR = (64, 1 << 15, 1 << 24)  # so far apart that no other load of the machine turns them round
REAL = ["-b", "64", "-e", "16M", "-f", "512", "-n", "8"]


def command(*words):
    return cli.main(["measure-links", *SMALL, *words])


def table(link, sizes=SIZES):
    return Table(sizes, tuple(link.latency + n / link.bandwidth for n in sizes))


def report(**links):
    return Report(2e-10, {name: table(link) for name, link in links.items()})


# --- among ranks ----------------------------------------------------------------------------------


def among(hosts, *words, among_ranks=measure_links.among_ranks):
    """What rank 0 reports, on the virtual clock, when the ranks run on these hosts."""
    args = cli.parse("measure-links", [*SMALL, "--level", "node", "--level", "network", *words])
    counts = [hosts.count(host) for host in dict.fromkeys(hosts)]

    def program(comm):
        return among_ranks(comm, args, (hosts[comm.rank], comm.rank))

    return run(program, ranks=len(hosts), links=by_node(counts, INSIDE, ACROSS))[0]


@pytest.mark.parametrize("hosts", ["aabb", "abb", "aaabc"])
def test_each_level_has_the_times_of_its_own_link(hosts):
    found = among(hosts)
    assert found.tables == {"node": table(INSIDE), "network": table(ACROSS)}
    assert found.missing == {}
    ends = (0, len(hosts) - 1)  # a mutant: one pair for both levels
    broken = rebind(measure_links.among_ranks, pairs=lambda places: {"node": ends, "network": ends})
    assert among(hosts, among_ranks=broken).tables["node"] == table(ACROSS)


@pytest.mark.parametrize(
    ("hosts", "measured", "missing"),
    [
        ("a", [], {"node": "no two ranks", "network": "all ranks are on one node"}),
        ("aaa", ["node"], {"network": "all ranks are on one node"}),
        ("abc", ["network"], {"node": "no two ranks"}),
    ],
)
def test_what_is_missing_is_said(hosts, measured, missing):
    found = among(hosts)
    assert list(found.tables) == measured
    assert list(found.missing) == list(missing)
    assert all(found.missing[name].startswith(why) for name, why in missing.items())


def test_ranks_on_several_hosts_over_mpi(mpirun, tmp_path):
    """Real messages; only the names of the hosts are made up."""
    program = f"""
import os, sys
from minidist import cli, measure_links
rank = int(os.environ.get("PMIX_RANK") or os.environ["PMI_RANK"])
measure_links.place = lambda: ("ant" if rank < 2 else "bee", rank)
words = {REAL!r} + ["--level", "network", "--level", "node", "--json", "found.json"]
sys.exit(cli.main(["measure-links", *words]))
"""
    done = mpirun(program, 3)
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert set(found["tables"]) == {"node", "network"}
    assert found["tables"]["network"]["bytes"] == list(FAR)
    assert done.stdout.count("latency ") == 2, "one rank speaks"
    assert set(load().links) == {"node", "network"}


# --- alone ----------------------------------------------------------------------------------------


@pytest.mark.mpi
def test_alone_it_measures_the_process_and_the_node(tmp_path, capfd):
    files = [str(tmp_path / name) for name in ("a.json", "a.svg")]
    for _ in range(3):  # on a busy machine times may lie on no line, which is said
        assert command(*REAL, "--json", files[0], "--figure", files[1]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        if "node was not measured: fit: messages of" not in out:
            break
    assert "process: two ranks inside one process" in out
    assert "node: two processes on one node" in out
    assert "network was not measured: it takes ranks on two nodes" in out
    found = json.loads(Path(files[0]).read_text("utf-8"))
    assert list(found["tables"]) == ["process", "node"]
    for name, one in found["tables"].items():
        assert one["bytes"] == list(FAR)
        assert all(0 < seconds < 60 for seconds in one["seconds"])
        assert load().links[name] == Link(one["latency"], one["bandwidth"])
    assert "process: latency" in Path(files[1]).read_text("utf-8")


@pytest.fixture
def steady(monkeypatch):
    """A process in which messages take the same time whatever else the machine does."""
    monkeypatch.setattr(
        measure_links, "in_process", lambda sizes, rounds: table(INSIDE, tuple(sizes))
    )


def started(error):
    def mpirun(*args, **kwargs):
        raise error

    return mpirun


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("no end\nafter 60 s"),
        AssertionError("2 ranks\nminidist launch: no MPI library"),
    ],
)
def test_without_mpi_the_process_is_measured_and_the_rest_explained(
    steady, error, monkeypatch, capsys
):
    monkeypatch.setattr(processes, "mpirun", started(error))
    assert command() == 0
    out = capsys.readouterr().out
    assert "node was not measured: two MPI ranks did not do it: " in out
    assert str(error).splitlines()[-1] in out
    assert list(load().links) == ["process"]


def test_nothing_measured_is_status_1_and_keeps_nothing(monkeypatch, capsys, cache):
    monkeypatch.setattr(processes, "mpirun", started(TimeoutError("no end")))
    assert command("--level", "node", "--level", "network") == 1
    assert "network was not measured" in capsys.readouterr().out
    assert not cache.exists()


def test_a_dry_run_keeps_nothing(steady, capsys, cache):
    assert command("--level", "process", "--dry-run") == 0
    assert "kept" not in capsys.readouterr().out
    assert not cache.exists()


def test_other_levels_stay_as_they_were(steady, capsys):
    old = Link(1e-5, 1e9)
    save(Measured({"network": old, "process": old}, 1e-9, {"network": "long ago"}))
    assert command("--level", "process") == 0
    found = load()
    assert list(found.links) == ["process", "network"]
    assert found.links["network"] == old
    assert found.links["process"] != old
    assert found.about["network"] == "long ago"
    assert "T" in found.about["process"]


def test_a_broken_file_is_replaced(steady, capsys):
    path = save(Measured({}, 0.0))
    path.write_text("{")
    assert command("--level", "process") == 0
    assert list(load().links) == ["process"]


@pytest.mark.parametrize("flag", ["--json", "--figure"])
def test_a_file_that_cannot_be_written_is_one_sentence(steady, flag, tmp_path, capsys, cache):
    assert command("--level", "process", flag, str(tmp_path / "none" / "x")) == 1
    out, err = capsys.readouterr()
    assert "latency" in out, "what was measured is shown all the same"
    assert err.count("\n") == 1
    assert err.startswith("minidist measure-links: cannot write")
    assert cache.exists(), "and kept"


def test_messages_beyond_the_memory_are_refused_before_anything_is_measured():
    args = cli.parse("measure-links", ["-e", "100000G"])
    with pytest.raises(ConfigError, match="do not fit into"):
        measure_links.check(args)


def test_ranks_that_have_ended_already_need_no_end(tmp_path):
    """Ctrl-C goes to all; those who were quicker to end are not there any more."""
    done = processes.start([sys.executable, "-c", "print('bye')"], tmp_path)
    done.wait(30)
    assert processes._end(done) == ("bye\n", "")


def test_a_cache_that_cannot_be_written_is_one_sentence(steady, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINIDIST_CACHE", str(tmp_path / "file"))
    assert command("--level", "process") == 1
    err = capsys.readouterr().err
    assert err.startswith("minidist measure-links: cannot keep the links in ")
    assert err.count("\n") == 1


def test_a_picture_without_matplotlib_is_one_sentence(steady, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert command("--level", "process", "--figure", str(tmp_path / "a.svg")) == 1
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "a.svg").exists()


def test_ctrl_c_ends_the_ranks_that_it_has_started(tmp_path):
    """A rank tells its number and waits; after Ctrl-C in the parent it must be gone."""
    os.mkfifo(tmp_path / "pid")  # whoever reads it waits until somebody has written
    program = tmp_path / "wait.py"
    program.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    source = (
        "import pathlib, sys; from minidist.processes import finish, start\n"
        f"finish(start([sys.executable, {str(program)!r}], pathlib.Path('.')), 60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.DEVNULL)
    pid = int((tmp_path / "pid").read_text())
    parent.send_signal(signal.SIGINT)
    assert parent.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# --- flags, text, picture -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (["-b", "8", "-e", "16"], None),
        (["-f", "1"], None),
        (["-b", "1M", "-e", "1K"], None),
        (["-b", "8", "-e", "32"], [8, 32]),
        (["-b", "1k", "-e", "1G", "-f", "1024"], [1 << 10, 1 << 20, 1 << 30]),
        (["-b", "3", "-e", "100", "-f", "5"], [3, 15, 75]),
    ],
)
def test_sizes(words, sizes):
    args = cli.parse("measure-links", words)
    if sizes:
        assert measure_links.check(args) == sizes
        return
    with pytest.raises(ConfigError, match="two sizes or more"):
        measure_links.check(args)
    with pytest.raises(ConfigError, match="two sizes or more"):  # before ranks are started
        cli.run(["launch", "-n", "2", "--", "minidist", "measure-links", *words])


@pytest.mark.parametrize("words", [["-b", "0"], ["-b", "x"], ["-e", "-8"], ["-e", "K"], ["-n", "0"],
                                   ["-b", ""], ["-f", "1.5"], ["--level", "moon"]])  # fmt: skip
def test_wrong_flags_are_refused(words, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["measure-links", *words])
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_text_has_every_number():
    text = "\n".join(show(report(node=Link(1e-6, 4e9))))
    assert text.splitlines()[2].split() == ["64", "1.02", "0.063", "1.02"]
    assert "latency 1 µs, bandwidth 4 GB/s, knee 3.91 KiB; the line is off by 0% at worst" in text
    assert "adding: 200 ps a byte of float32" in text


def test_times_through_which_no_line_goes_are_said():
    one = Report(1e-10)
    one.add_table("node", Table((8, 16), (2.0, 1.0)))
    assert one.tables == {}
    assert "measure larger ones too" in one.missing["node"]


def test_the_picture_marks_the_knee_where_there_is_one():
    svg = draw(report(node=Link(1e-6, 1e9), network=Link(1.0, 1e9)))
    assert "node: knee 1000 B" in svg
    assert "network: knee" not in svg.partition("</desc>")[2], "beyond all sizes"
    assert draw(report(node=Link(1e-6, 1e9))) == draw(report(node=Link(1e-6, 1e9)))
    assert draw(report(node=Link(0.0, 1e9)))
