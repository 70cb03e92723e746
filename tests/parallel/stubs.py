"""Units that own parameters and compute nothing, and wrong kinds of ZeRO: for the tests of it."""

import numpy as np

from minidist.nn import At, Parameter
from minidist.parallel import data
from minidist.parallel.bucket import Bucket
from minidist.parallel.zero import Zero
from minidist.testing.mutants import mutate


class Stub:
    """A unit that owns parameters, adds gradients that tell rank and index, and may compute.

    ``idle`` parameters get no gradient: no sample reaches them.
    """

    def __init__(self, comm, *own, seconds=0.0, polls=8, idle=()):
        self.comm, self.own, self.idle = comm, [*own, *idle], idle
        self.seconds, self.polls = seconds, polls

    def parameters(self):
        return list(self.own)

    def work(self, seconds, at):
        for _ in range(self.polls):
            self.comm.compute(seconds / self.polls)
            at.progress()

    def forward(self, x, at):
        assert all(p.data is not None and p.data.shape == p.local for p in self.own)
        self.work(self.seconds, at)
        return x, at

    def backward(self, ctx, dy, later=None):
        for p in self.own:
            if p not in self.idle:
                scale = 1.0 + (self.comm.rank if "tp" in p.partial or not p.copies else 0)
                p.accumulate(scale * np.arange(1.0, p.size + 1).reshape(p.local))
        self.work(2 * self.seconds, ctx)
        return dy


def steps(comm, sync, count=2, micro_batches=1, factor=1.0):
    """Take some steps of stub units, at a rate of 0.01."""
    at = At(0, True, np.arange(1), np.arange(1), sync.poll)
    for number in range(count):
        sync.begin()
        sync.fetch(0)
        for left in reversed(range(micro_batches)):
            contexts = [unit.forward(1.0, at)[1] for unit in sync.units]
            for index in reversed(range(len(sync.units))):
                sync.units[index].backward(contexts[index], 1.0)
                sync.ready(index, left == 0)
        sync.finish()
        sync.update(0.01, number + 1, factor)


def weights(sync):
    """Every parameter as layers see it, by name: copies. All ranks call it."""
    return {p.name: p.data.copy() for b in sync.gathered() for p in b.layout.parameters}


def vector(name, size, **how):
    return Parameter(name, (size,), init=1.0, **how)


def odd_model(comm):
    """Tied, frozen, empty, of one element, without dimensions, and never reached."""
    tied, last = vector("tied", 7), Parameter("matrix", (3, 5), init=1.0)
    unused = Parameter("unused", (2, 3), init="ones")
    frozen = Parameter("frozen", (2, 2), init="ones", trainable=False)
    return [
        Stub(comm, tied, Parameter("scalar", (), init="ones")),
        Stub(comm, idle=(unused,)),
        Stub(comm, vector("empty", 0), Parameter("wide", (8, 0), init=1.0)),
        Stub(comm, vector("one", 1), frozen),
        Stub(comm, last, tied),
    ]


def with_bucket(old, new):
    """A kind of Zero whose buckets have one changed line."""
    broken = mutate(Bucket, old, new)

    class Broken(Zero):
        def __init__(self, *args, **options):
            data.Bucket = broken
            try:
                super().__init__(*args, **options)
            finally:
                data.Bucket = Bucket

    return Broken
