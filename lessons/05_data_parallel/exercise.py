"""Lesson 05: data parallelism, buckets, overlap. Fill in the six blanks, from top to bottom.

    ./run check 05          which blank is next, or the smallest case that goes wrong

Every rank holds the whole model and works on its own part of the batch. Gradients are then summed
over the ranks, so that all of them take the same step, the one that a single process would take.

The first three functions stand alone. The last three are methods of `DataParallel`, which a
training step calls like this (minidist/parallel/data.py and minidist/train/step.py):

    self.begin()                                clear the gradients
    for each micro-batch of this rank:
        forward
        for unit in N - 1, ... 1, 0:            backward goes from the last unit to the first
            backward of the unit                adds to the gradients, and polls: self.poll()
            self.ready(unit, last)              last: this was the last micro-batch
    self.finish()                               now every rank has the sum of all gradients

Parameters are collected in buckets, and a bucket's gradients are summed by one ring. In `self` is

    self.buckets            all buckets; some are frozen, and never get a ring
    self._reduced           those that are trained
    self._of[unit]          of these, the buckets that a unit adds to
    bucket.users            a set: the units that add to the bucket. A table that embedding and head
                            share, or a bucket of joined units, has several
    self._finished[bucket]  a set, empty after begin(): for you to note who is done with a bucket
    bucket.ring             its ring in flight, or None as long as none was started in this step
"""

import numpy as np

from minidist.bounds import bounds, share
from minidist.collectives import ring, wait_all
from minidist.errors import StepError
from minidist.parallel.flat import Group


def micro_batches(comm, batch, parts):
    """Return where this rank's micro-batches start and stop: ``parts`` pairs (start, stop).

    The batch is range(batch), and every sample is worked on once, by one rank. Cut it among the
    ranks first, `share(comm, batch)`, and then this rank's piece into parts, `bounds(n, parts)`.
    Nothing has to be sent. Pieces may be empty.

    2 ranks, batch 5, 2 parts:      rank 0  [(0, 2), (2, 3)]      rank 1  [(3, 4), (4, 5)]
    """
    start, stop = share(comm, batch)
    raise NotImplementedError("05.1: cut range(start, stop) into parts; return the pairs")


def mean(comm, total, count):
    """Return the mean over all ranks, the same on all of them. All ranks call it.

    ``total`` is the sum of this rank's losses and ``count`` how many there are. Ranks may have
    different counts: samples are of different length, and a batch need not divide. A rank may have
    none. If nobody has any, the mean is 0.

    Rank 0 has three losses of 1: (3, 3). Rank 1 has one of 9: (9, 1). The mean of these four is 3.

    `ring.all_reduce(comm, x)` sums an array over all ranks, in place, and returns it.
    """
    raise NotImplementedError("05.2: what has to be summed over the ranks, and what divided?")


def join(groups, elements):
    """Join neighbouring groups until each has ``elements`` elements or more. Return the list.

    ``groups`` go by units, from the first to the last; each becomes a bucket in the end. Backward
    goes the other way, so begin with the last: join the one before to it as long as there are fewer
    than ``elements``; then begin the next. What backward reaches last may stay smaller.

    A `Group(users, parameters)` has a `size`, in elements. Both fields of a joined group, and the
    result, go by units from the first to the last again: Group((*a.users, *b.users),
    [*a.parameters, *b.parameters]) is a and then b.

    Units 0, 1, 2 of 4, 2 and 3 elements; 4 elements: [group of unit 0, group of units 1 and 2].
    """
    joined = []  # from the last to the first
    for g in reversed(groups):
        raise NotImplementedError("05.3: join g and the last of `joined`, or begin a new one")
    return joined[::-1]


def ready(self, unit, last=True):
    """Take note that backward of ``unit`` has added its gradients; start the rings of full buckets.

    A bucket is full when each of its users has reported for the last time, with ``last``. Then
    `self._launch(bucket, True)` starts its ring: at once, and not sooner. Once in a step, also with
    several micro-batches: these are added up first, on each rank, and nothing is sent for them.

    (At ZeRO stages 2 and 3, lesson 07, micro-batches are reduced one by one. Leave that away.)
    """
    for b in self._of[unit]:
        finished = self._finished[b]
        raise NotImplementedError("05.4: note the unit if this is the last time; launch if full")


def poll(self):
    """Let every ring in flight go on as far as the messages that have arrived allow.

    A ring does nothing by itself. `bucket.ring.poll()` looks what has come, adds it up, sends the
    next piece, and never waits. It is called again and again between layers. Some buckets have no
    ring yet, and some rings are done, `bucket.ring.done`: leave these alone.
    """
    raise NotImplementedError("05.5: poll the rings that are in flight")


def finish(self):
    """Return when every gradient is the sum over all ranks: when all rings are done.

    `wait_all(rings)` does that for a list of rings. Until then a ring still reads and writes the
    gradients: neither the optimiser nor the next step may touch them.
    """
    for b in self._reduced:
        missing = sorted(b.users - self._finished[b])
        if missing:
            raise StepError(f"finish() before ready() of unit {missing}")
    raise NotImplementedError("05.6: wait for the rings of all buckets that have one")
