"""Real ranks through `minidist launch`: right world, right library, right end."""

HELLO = """
import json, os
from mpi4py import MPI
world = MPI.COMM_WORLD
every = world.gather((world.rank, os.environ["OMP_NUM_THREADS"]))
if world.rank == 0:
    print(json.dumps(every))
"""


def test_ranks_meet_in_one_world(mpirun):
    assert mpirun(HELLO, ranks=3).stdout == '[[0, "1"], [1, "1"], [2, "1"]]\n'
