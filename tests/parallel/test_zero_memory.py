"""State of real processes: what Python's allocation tracing sees beside what the ledger booked."""

import json

import pytest

from tests.tiers import fast_and_slow

TRACED = """
import json, tracemalloc
import numpy as np
from minidist.comm import world
from minidist.comm.scratch import Scratch
from minidist.nn import DecoderConfig, build_decoder
from minidist.ops.half import named
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import Zero
from minidist.train.corpus import Corpus, Text
from minidist.train.optimizer import AdamW
from minidist.train.step import Step

comm, found = world(), []
mesh = Mesh(comm)
corpus = Corpus(Text("numbers", bytes(i * i % 251 for i in range(900))), 4, 1)
def build(stage, dtype, **config):
    units = build_decoder(DecoderConfig(**config), corpus.labels)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    sync = Zero(units, AdamW(), mesh, stage, dtype=named(dtype), grad_dtype=named(dtype))
    built = tracemalloc.get_traced_memory()[0] - before
    Step(sync, corpus, batch=2, learning_rate=lambda step: 0.01)(0)
    stepped = tracemalloc.get_traced_memory()[0] - before - comm.state.scratch.nbytes
    tracemalloc.stop()
    comm.state.scratch = Scratch()
    return stage, dtype, sync.ledger.total, built, stepped

build(0, "float32", layers=1, width=8)  # the first step imports modules
for stage in range(4):
    for dtype in ("float32", "bfloat16"):
        found.append(build(stage, dtype, **CONFIG))
everyone = comm.gather_objects(found)
if comm.rank == 0:
    print(json.dumps(everyone))
"""

CONFIG = {"layers": 4, "width": 160, "heads": 4, "groups": 2}  # 1.25 million parameters


@pytest.mark.parametrize("ranks", fast_and_slow([2, 3, 4], 1))
def test_tracing_agrees_with_the_ledger_within_5_percent(mpirun, ranks):
    """When the state is built, and after a step; at stage 3, where Python's objects weigh most.

    After a step there are the work pieces of rings in addition, which the end of a run tells.
    """
    done = mpirun(TRACED.replace("CONFIG", repr(CONFIG)), ranks=ranks)
    for found in json.loads(done.stdout):
        for stage, dtype, booked, *traced in found:
            for seen in traced:
                assert abs(seen / booked - 1) < 0.05, (stage, dtype, seen, booked)
