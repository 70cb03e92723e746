"""The timeline: events of one track nest, sends meet receives, every ring and unit is there."""

import json
from collections import defaultdict

import numpy as np
import pytest

from minidist.comm import Link, run
from minidist.parallel.data import DataParallel
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate
from minidist.train import trace
from minidist.train.optimizer import SGD
from minidist.train.step import Step
from minidist.train.trace import Trace, chrome_events, start_trace, write_trace
from tests.train.plain import Case, ToyCorpus
from tests.train.runs import train


def traced_step(comm, path, kind=Trace):
    corpus = ToyCorpus(4, 0.0)
    units = Case(layers=2).units(corpus.labels)
    sync = Zero(units, SGD(), Mesh(comm), dtype=np.float64)
    step = Step(sync, corpus, batch=4, learning_rate=lambda k: 0.1)
    watch = kind(origin=start_trace(comm).origin)
    step(0, watch)
    write_trace(comm, watch, path)
    return len(units), len([b for b in sync.buckets if b.trainable])


def check_trace(path, ranks, units, buckets):
    """What a viewer relies on, and what the step did."""
    document = json.loads(path.read_text())
    assert document["displayTimeUnit"] == "ms"
    tracks, arrows, names = defaultdict(list), defaultdict(list), {}
    for e in document["traceEvents"]:
        assert 0 <= e["pid"] < ranks
        if e["ph"] == "X":
            assert e["dur"] >= 0 <= e["ts"]
            tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"], e["name"]))
        elif e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] in "sf":
            arrows[e["id"]].append((e["ph"], e["pid"], e["ts"]))
    assert names.keys() == tracks.keys()
    for events in tracks.values():
        check_nesting(events)
    for rank in range(ranks):
        compute = [name for _, _, name in tracks[rank, 0]]
        for way in ("forward", "backward"):
            assert [n for n in compute if n.startswith(way)] == in_order(way, units)
        assert {"wait for gradients", "update"} <= set(compute)
        assert sum(name.startswith("step ") for name in compute) == 1
        rings = [t for (pid, t), name in names.items() if pid == rank and name.startswith("ring: ")]
        assert len(rings) == buckets
        hops = [name for t in rings for _, _, name in tracks[rank, t] if name.startswith("hop")]
        assert len(hops) == buckets * 2 * (ranks - 1)
    assert len(arrows) == ranks * buckets * 2 * (ranks - 1)
    for message, ends in arrows.items():
        (_, sender, sent), (_, receiver, received) = sorted(ends, reverse=True)
        assert [end for end, _, _ in sorted(ends, reverse=True)] == ["s", "f"], message
        assert receiver == (sender + 1) % ranks
        assert sent <= received


def in_order(way, units):
    numbers = range(units) if way == "forward" else reversed(range(units))
    return [f"{way} unit {number}" for number in numbers]


def check_nesting(events):
    """Sorted by start, every event lies inside or beside all earlier ones (a stack)."""
    open_until = []
    for start, stop, name in sorted(events, key=lambda e: (e[0], -e[1])):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or stop <= open_until[-1], f"{name} overlaps its track"
        open_until.append(stop)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_trace_shows_the_step(tmp_path, ranks):
    path = tmp_path / "trace.json"
    units, buckets = run(traced_step, path, ranks=ranks)[0]
    check_trace(path, ranks, units, buckets)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('f"ring: {name}"', '"ring: all"'),
        ("{exchange.source}", "{rank}"),
        ("yield exchange\n", "yield exchange\n            continue\n"),
        ("COMPUTE, start, self.now()", "COMPUTE, start, self.now() + 1"),
    ],
)
def test_a_wrong_trace_is_seen(tmp_path, old, new):
    broken = mutate(Trace, old, new)
    units, buckets = run(traced_step, tmp_path / "t", broken, ranks=3)[0]
    with pytest.raises(AssertionError):
        check_trace(tmp_path / "t", 3, units, buckets)


def test_watching_changes_no_number_and_no_message(tmp_path):
    def program(comm, watch):
        corpus = ToyCorpus(4, 0.0)
        units = Case(layers=1).units(corpus.labels)
        sync = Zero(units, SGD(), Mesh(comm), dtype=np.float64)
        step = Step(sync, corpus, batch=4, learning_rate=lambda k: 0.1)
        seen = [start_trace(comm)] if watch else []
        step(0, *seen)
        return [b.stored.tobytes() for b in sync.buckets], comm.traffic.bytes, comm.traffic.messages

    assert run(program, True, ranks=3) == run(program, False, ranks=3)


def test_a_clock_may_be_virtual():
    """With a clock of one's own, times are exact: hops of a ring one after the other."""

    def program(comm):
        watch = Trace(lambda: comm.time)
        sync = DataParallel([Case().units(None)[0]], Mesh(comm), np.float64)
        sync.begin(watch)
        comm.compute(2.0)
        sync.ready(0)
        sync.finish()
        return [(e.name, round(e.start, 9), round(e.stop, 9)) for e in watch.events]

    half = 11 * 8 * 8 / 2
    for events in run(program, ranks=2, links=Link(0.0, half)):
        assert events == [("hop 0", 2, 3), ("hop 1", 3, 4), ("all-reduce unit 0", 2, 4)]


def test_records_are_sorted_and_named():
    events = [trace.Event("b", trace.COMPUTE, 0.5, 1.0), trace.Event("a", trace.COMPUTE, 0.0, 2.0)]
    records = trace.chrome_events(3, events)
    assert [(r["name"], r["pid"], r.get("ts"), r.get("dur")) for r in records] == [
        ("process_name", 3, None, None),
        ("thread_name", 3, None, None),
        ("a", 3, 0.0, 2e6),
        ("b", 3, 5e5, 5e5),
    ]


def check_memory(kind=Trace):
    """What is held is noted around each block and before each hop, as a counter of the rank."""
    held = iter(range(100, 200))
    watch = kind(clock=lambda: 0.25, held=lambda: next(held))
    with watch.span("forward"):
        next(held)
    assert watch.memory == [(0.25, 100), (0.25, 102)]
    records = [r for r in chrome_events(3, watch.events, watch.memory) if r["ph"] == "C"]
    assert [r["args"]["bytes"] for r in records] == [100, 102]
    assert all((r["pid"], r["ts"], r["name"]) == (3, 250000.0, "held") for r in records)


def test_what_is_held_is_a_counter():
    check_memory()


def test_memory_that_is_noted_too_late_is_seen():
    with pytest.raises(AssertionError):
        check_memory(mutate(Trace, "        self._note()\n        yield\n", "        yield\n"))


def test_a_run_traces_what_its_ranks_hold(folder):
    assert train(out="r", steps=2, in_process=2, zero=3) == 0
    records = json.loads((folder / "r/trace.json").read_text())["traceEvents"]
    for rank in (0, 1):
        held = [r["args"]["bytes"] for r in records if r["ph"] == "C" and r["pid"] == rank]
        assert len(set(held)) > 5
        assert held[0] == min(held) < max(held)
