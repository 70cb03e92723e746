"""Lesson 08: ZeRO-3. Fill in the six blanks, from top to bottom.

    ./run check 08          which blank is next, or the smallest case that goes wrong

A *unit* is a part of the model that runs as a whole: an embedding, a block, the head. Its
parameters lie in one flat buffer, a *bucket*, of which rank r keeps chunk r. Before the unit runs,
the whole is gathered; after it, that memory is freed. All but 08.1 are methods of the machine that
`minidist train` runs; the check puts yours into it. What they use of a bucket b:

    b.stage                at stage 3 parameters are cut; below, each rank has a whole buffer
    b.stored               the parameters that stay: the chunk at stage 3, else the whole buffer
    b.flat                 the whole buffer, as layers read it; None while it is not here
    b.stale                True if `b.flat` is here but other ranks have updated it: stages 1 and 2
    b.gathering            the gather in flight, or None; b.gathering.wait() blocks until it is done
    b.held                 how many users need the whole buffer now
    b.layout.parameters    the Parameters in it, each with its `data`
    b.how.ledger           the account of memory, take(kind, nbytes) and give(kind, nbytes)
    b._room()              a whole buffer with the own chunk in its place, booked as "buffers"; on
                           one rank that is `b.stored` itself, and nothing is booked
    b._show(flat)          has each parameter's data be a view of this buffer
"""

from collections import defaultdict
from contextlib import contextmanager

from minidist.collectives import Started, ring
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.chunk import reduce_chunk


def users_of(units):
    """Return the parameters of a model, each once, and the indices of the units that use it.

    ``unit.parameters()`` lists those of a unit, and may have one twice. The result is a dictionary:
    keys are the Parameters in the order in which they first appear, values are lists of indices.
    Parameters with the same users will share a bucket, so each lies in exactly one.

    An embedding and a head that share their table, with a norm between them:

        units     [embedding: table]  [norm: g]  [head: table, bias]
        result    {table: [0, 2], g: [1], bias: [2]}
    """
    users = defaultdict(list)
    raise NotImplementedError("08.1: for each parameter, the indices of its units, each once")
    return users


def fetch(bucket):
    """Start to gather the whole buffer, if it is not here or out of date. Does not wait.

    It may be called again and again: a second gather must not start while one is in flight, and
    none if the buffer is here and up to date. Where there is no buffer, `_room()` gives one.

    ``gather(bucket)`` starts a ring all-gather into `bucket.flat` and returns it; it belongs into
    `bucket.gathering`. All ranks come here in the same order.

    Bytes     N - 1 chunks: all but that of the right neighbour.
    """
    raise NotImplementedError("08.2: return if there is nothing to do; make room; start to gather")


def gather(bucket):
    """Start an all-gather of this rank's chunk and all others into `bucket.flat`. Given."""
    channel = bucket.comm.channel(PARAMETERS, bucket.name)
    name = f"{bucket.name} {PARAMETERS}"
    steps = bucket.watch.ring(name, ring.all_gather.steps(channel, bucket.flat))
    return Started(steps, bucket.comm)


def hold(bucket):
    """Have the parameters whole and up to date until `release`.

    1. ``bucket.fetch()``: perhaps somebody has started that before, perhaps not.
    2. One more needs it: `bucket.held`.
    3. If a gather is in flight: wait for it. Then there is none, nothing is stale, and the
       parameters show the buffer.

    A table that two units share may be held twice at once; it is gathered once then.
    """
    raise NotImplementedError("08.3: fetch, count, and if a gather is in flight wait and show it")


def release(bucket):
    """At stage 3, free what `hold` gathered, once nobody else holds it.

    Freed means: its bytes, ``bucket.flat.nbytes`` of "buffers", are given back to the ledger, and
    nobody refers to the memory any more: neither `bucket.flat` nor any parameter's `data`, which
    become None. What is in it is lost; what stays is the chunk in `bucket.stored`.

    On one rank the buffer is `bucket.stored` itself, which was never booked as "buffers". Below
    stage 3 nothing is freed.
    """
    raise NotImplementedError("08.4: one holder less; if that was the last, free the buffer")


@contextmanager
def using(zero, unit, ahead):
    """Have the parameters of ``unit`` for a `with` block, those of unit ``ahead`` on the way.

    ``zero._used[unit]`` are the buckets of a unit, and ``zero.fetch(index)`` starts to gather those
    of another one; an index beyond the ends is no unit, and nothing happens. In forward ahead is
    unit + 1, in backward unit - 1. The block runs at the `yield`.

        unit 0   |hold|  compute  |release|
        unit 1          |~~ gathering ~~~~~~|hold|  compute  |release|
        unit 2                                     |~~ gathering ~~~~~~| ...

    Nobody may have more than two units gathered at a time.
    """
    buckets = zero._used[unit]
    raise NotImplementedError("08.5: hold the buckets, start the ones ahead, yield them, release")
    yield buckets


def reduce(bucket, final):
    """Send the gradient of a unit to its owners, and free it. Stages 2 and 3.

    A body, as in lesson 07; it runs once for each micro-batch, when backward has left the bucket's
    units. The machine writes down what has been begun:

    1. ``flat = bucket._take_back()`` takes the whole gradient from the layers: the next micro-batch
       gets other memory, since this one is travelling.
    2. The first micro-batch goes into `bucket.sum`, the chunk that stays; later ones are added to
       it. ``reduce_chunk.steps(data, flat, out, onto)`` is blank 07.3. `bucket.begun` tells whether
       there was one before in this step, and has to be set.
    3. Give the bytes of flat back to the ledger: they are "buffers".
    """
    data, whole = (bucket.comm.channel(GRADIENTS, bucket.name) for _ in range(2))
    raise NotImplementedError("08.6: take the gradient back, reduce it to bucket.sum, free it")
    yield from reduce_chunk.steps(data, ...)
    if final and not bucket.rest:  # sums over tensor-parallel ranks, lesson 10, come later
        yield from bucket._complete(whole, [])
