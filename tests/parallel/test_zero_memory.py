"""State of real processes: what Python's allocation tracing sees beside what the ledger booked."""

import json

import pytest

from tests.tiers import fast_and_slow

TRACED = """
import json, tracemalloc
import numpy as np
from minidist.comm import world
from minidist.nn import DecoderConfig, build_decoder
from minidist.ops.half import named
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.train.optimizer import AdamW

comm, found = world(), []
mesh = Mesh(comm)
config = DecoderConfig(layers=3, width=64, heads=4, groups=2)
for stage in range(4):
    for dtype in ("float32", "bfloat16"):
        units = build_decoder(config)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        sync = Zero(units, AdamW(), mesh, stage, dtype=named(dtype), grad_dtype=named(dtype))
        traced = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        found.append((stage, dtype, traced, sync.ledger.total))
everyone = comm.gather_objects(found)
if comm.rank == 0:
    print(json.dumps(everyone))
"""


@pytest.mark.parametrize("ranks", fast_and_slow([2, 3], 1))
def test_tracing_agrees_with_the_ledger_within_5_percent(mpirun, ranks):
    """At stage 3, where Python's own objects weigh most, too."""
    done = mpirun(TRACED, ranks=ranks)
    for found in json.loads(done.stdout):
        for stage, dtype, traced, booked in found:
            assert abs(traced / booked - 1) < 0.05, (stage, dtype, traced, booked)
