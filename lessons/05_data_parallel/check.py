"""The laws of lesson 05, in the order of its blanks; a test is about the blank in its name.

Small worlds come first. The last test puts all six together, in one step of a small decoder.
"""

from itertools import pairwise, product
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from minidist.comm import Link
from minidist.learn.laws import LawBroken, compare, counted, plain, run
from minidist.nn import Parameter
from minidist.parallel import flat
from minidist.parallel.data import DataParallel
from minidist.parallel.flat import Group
from minidist.parallel.mesh import Mesh
from minidist.testing.microsteps import BATCH, differences, on_ranks, one_process
from minidist.testing.sharded import drain

RANKS, PARTS = (1, 2, 3, 4), (1, 2, 3)


def unit(*own):
    """A unit that owns parameters and computes nothing."""
    return SimpleNamespace(parameters=lambda: own)


def vector(name, size=2, **how):
    return Parameter(name, (size,), init=1.0, **how)


def yours(**methods):
    """DataParallel with some methods of the exercise."""
    return type("YourDataParallel", (DataParallel,), methods)


def in_parts(parts):
    return "1 micro-batch" if parts == 1 else f"{parts} micro-batches"


def pairs(value):
    """A list of pairs for people: [0:2] [2:3]."""
    good = isinstance(value, list) and all(isinstance(x, tuple) and len(x) == 2 for x in value)
    return " ".join("[{}:{}]".format(*x) for x in value) if good else repr(value)


def dealt(first, n, parts):
    """Pairs by another route: n cards dealt round to the parts, then counted."""
    ends = np.cumsum([first, *(len(range(i, n, parts)) for i in range(parts))]).tolist()
    return list(pairwise(ends))


def test_micro_batches(exercise):
    """05.1  every sample of the batch is worked on once, by one rank, in one micro-batch."""
    law = (
        "the pieces of all ranks, one after the other, are the batch, each sample once, however "
        "many ranks there are. Pieces differ by one at most, the longer ones first."
    )
    for ranks, parts in product(RANKS, PARTS):
        for batch in range(2 * ranks * parts + 2):
            got = run(exercise.micro_batches, batch, parts, ranks=ranks)
            own = dealt(0, batch, ranks)
            want = [dealt(start, stop - start, parts) for start, stop in own]
            world = f"{counted(ranks, 'rank')}, batch {batch}, {in_parts(parts)}"
            compare(law, world, [*map(pairs, want)], [*map(pairs, got)], str, "take")


def test_mean(exercise):
    """05.2  the mean of all losses, whichever rank they are on."""
    law = (
        "every loss counts the same, on whatever rank it is: the sum of all sums, divided by the "
        "sum of all counts. A mean of the ranks' means gives a loss on a rank with few of them "
        "more weight. Nothing at all has the mean 0."
    )
    for have in (
        [(6, 3)],
        [(3, 3), (9, 1)],
        [(9, 1), (3, 3)],
        [(0, 0), (8, 4)],
        [(3, 3), (9, 1), (0, 0)],
        [(0, 0), (0, 0)],
        [(1, 2), (3, 1), (2, 1), (0, 4)],
    ):
        ranks, (sums, counts) = len(have), zip(*have, strict=True)
        own = [(float(total), float(count)) for total, count in have]
        with np.errstate(all="ignore"):
            got = run(lambda comm, own=own: exercise.mean(comm, *own[comm.rank]), ranks=ranks)
        world = f"{counted(ranks, 'rank')}, sums {[*sums]}, counts {[*counts]}"
        want = sum(sums) / max(1, sum(counts))
        compare(law, world, [want] * ranks, got, lambda v: f"the mean {v}", "get")


def shown(groups):
    """Groups for people: units, and what they own."""
    if not isinstance(groups, list) or not all(isinstance(g, Group) for g in groups):
        return repr(groups)
    each = [("+".join(map(str, g.users)), " ".join(p.name for p in g.parameters)) for g in groups]
    return ", ".join(f"units {units} ({names})" for units, names in each)


def test_join(exercise):
    """05.3  buckets are filled from the last unit on, and no parameter is lost."""
    law = (
        "from the last unit on, a bucket takes in the unit before as long as it has too few "
        "elements; every parameter is in one bucket, and buckets, units and parameters are in the "
        "order of the model."
    )
    for sizes in ([4], [4, 4], [4, 2, 3], [1, 1, 1, 1, 1], [8, 1, 1, 8], [0, 3, 0]):
        for elements in range(sum(sizes) + 2):
            groups = [Group((i,), [vector(f"p{i}", n)]) for i, n in enumerate(sizes)]
            want, taken, filled = [], [], 0
            for g in groups[::-1]:
                taken, filled = [g, *taken], filled + g.size
                if filled >= elements or g is groups[0]:
                    units, own = ([x for h in taken for x in h[i]] for i in (0, 1))
                    want, taken, filled = [Group(tuple(units), own), *want], [], 0
            got = exercise.join(list(groups), elements)
            if shown(got) != shown(want):
                table = f"should be  {shown(want)}\nis         {shown(got)}"
                raise LawBroken(law, f"units of {sizes} elements, {elements} a bucket", table)


def models():
    """Lists of units, smallest first; in the last one two units share a table."""
    tied, frozen = vector("tied"), vector("frozen", trainable=False)
    return [
        ("1 unit", [unit(vector("a"))]),
        ("2 units", [unit(vector("a")), unit(vector("b", 3))]),
        (
            "3 units, 0 and 2 share a table",
            [unit(tied), unit(vector("a"), frozen), unit(vector("b"), tied)],
        ),
    ]


def share_of(rank, part):
    """What a rank adds in a micro-batch: (1, 2, 3 ...) ones, tens, hundreds."""
    return (rank + 1) * 10.0**part


def two_steps(comm, kind, units, parts, poll=True):
    """Gradients by parameter after the second of two steps."""
    sync = kind(units, Mesh(comm), np.float64)
    for _ in range(2):
        sync.begin()
        for part in range(parts):
            for index in reversed(range(len(units))):
                for p in units[index].parameters():
                    p.accumulate(np.full(p.size, share_of(comm.rank, part)))
                sync.ready(index, part == parts - 1)
                if poll:
                    sync.poll()
        sync.finish()
        found = {p.name: p.grad.copy() for p in sync.parameters() if p.trainable}
        drain(comm)
        comm.barrier()
    return found


def check_sums(law, kind, **how):
    """Every rank ends with the sum over ranks, micro-batches and users."""
    for ranks, index, parts in product(RANKS[:3], range(3), PARTS[:2]):

        def program(comm, index=index, parts=parts):
            return two_steps(comm, kind, models()[index][1], parts, **how)

        found = run(program, ranks=ranks, links=Link(1e-3, 1e6))
        name, units = models()[index]
        users = [p.name for u in units for p in u.parameters()]
        total = sum(share_of(r, k) for r in range(ranks) for k in range(parts))
        rest = "; rank r adds r + 1" + (", then ten times that" if parts > 1 else "")
        world = f"{counted(ranks, 'rank')}, {in_parts(parts)}, {name}{rest}"
        for p, first in found[0].items():
            want = np.full(first.size, users.count(p) * total)
            compare(law, f"{world}: {p}", [want] * ranks, [f[p] for f in found], plain)


UNITS, ALONE = 8, 0.8  # units that compute for 1 s each; the ring of a bucket takes 0.8 s


def seconds(comm, kind):
    """Virtual seconds of backward, from the last unit to the first, until all sums are there."""
    own = [[vector(f"p{i}", 1000)] for i in range(UNITS)]
    own[3].append(vector("frozen", 5, trainable=False))
    units = [unit(*parameters) for parameters in own]
    sync = kind(units, Mesh(comm), np.float64)
    comm.barrier()
    start = comm.time
    sync.begin()
    for index in reversed(range(UNITS)):
        for _ in range(8):
            comm.compute(1 / 8)
            sync.poll()
        sync.ready(index)
    sync.finish()
    return comm.time - start


def check_overlap(law, kind):
    """Backward takes no longer than with the package's own methods."""
    wire = Link(0.0, 1000 * 8 * 1.5 / ALONE)
    best, took = (max(run(seconds, k, ranks=4, links=wire)) for k in (DataParallel, kind))
    hidden = max(0.0, 1 - (took - UNITS) / (UNITS * ALONE))
    if took > 1.02 * best:
        table = (
            f"computation alone          {UNITS:5.2f} s   8 units of 1 s\n"
            f"communication alone        {UNITS * ALONE:5.2f} s   8 rings\n"
            f"together, as it can be     {best:5.2f} s\n"
            f"together, yours            {took:5.2f} s   hides {hidden:.0%} of the communication"
        )
        told = f"4 ranks: backward should take {best:.2f} s, takes {took:.2f} s"
        raise LawBroken(law, told, table)


def test_ready(exercise):
    """05.4  a bucket is reduced when all its users have added their last gradient."""
    law = (
        "a gradient is the sum over all ranks, all micro-batches, and all units that use the "
        "parameter. A ring that starts sooner misses what is added later, and one that starts in "
        "each micro-batch sums what was summed."
    )
    check_sums(law, yours(ready=exercise.ready))


def test_ready_at_once(exercise):
    """05.4  ... and at once: while earlier units still compute."""
    law = (
        "a ring starts in the call in which the last user of its bucket reports for the last time: "
        "so it travels while the units before still compute."
    )

    def program(comm):
        units = models()[-1][1]
        sync = yours(ready=exercise.ready)(units, Mesh(comm), np.float64)
        sync.begin()
        told, seen = [], set()
        for part in range(2):
            for index in (2, 1, 0):
                sync.ready(index, part == 1)
                new = [b for b in sync.buckets if b.ring and b.name not in seen]
                seen |= {b.name for b in new}
                names = " and ".join(b.name.replace("unit ", "bucket ") for b in new)
                told.append(f"{index}: {names or 'nothing'}")
        drain(comm)
        return "; ".join(told)

    want = "2: nothing; 1: nothing; 0: nothing; 2: bucket 2; 1: bucket 1; 0: bucket 0+2"
    world = "2 ranks, 2 micro-batches, units 0 and 2 share a table; unit: what its report starts"
    compare(law, world, [want] * 2, run(program, ranks=2), str, "start")


def test_ready_goes_on(exercise):
    """05.4  ... and the units before do not wait for it."""
    law = "ready starts a ring and returns: it is finish that waits. Else nothing is hidden."
    check_overlap(law, yours(ready=exercise.ready))


def test_poll(exercise):
    """05.5  the messages travel while units compute: most of them cost no time."""
    law = (
        "poll looks after all rings in flight and waits for none. Then all is hidden but the last "
        "ring, which starts when nothing is left to compute, and what is lost between two polls."
    )
    check_overlap(law, yours(poll=exercise.poll))


def test_finish(exercise):
    """05.6  when finish returns, all sums are complete."""
    law = (
        "finish returns when the rings of all buckets are done. What is read sooner is a part of a "
        "sum, and what is written sooner is overwritten."
    )
    check_sums(law, yours(finish=exercise.finish), poll=False)


def test_finish_and_all_the_rest(exercise):
    """05.6  k micro-steps on n ranks are one step of one process."""
    law = (
        "loss and gradients are those of one process that works on the whole batch, up to the "
        "rounding of float64: on any number of ranks, in any number of micro-batches."
    )
    kind = yours(ready=exercise.ready, poll=exercise.poll, finish=exercise.finish)
    right = one_process()
    for ranks in (*RANKS, 7):
        for parts in PARTS[:2]:
            with patch.object(flat, "join", exercise.join):
                how = kind, exercise.micro_batches, exercise.mean
                found = run(on_ranks, parts, *how, ranks=ranks)
            world = f"{counted(ranks, 'rank')}, {in_parts(parts)}, batch {BATCH}"
            got = [in_words(differences(right, one)) for one in found]
            compare(law, world, ["all as in one process"] * ranks, got, str)


def in_words(off):
    """What is not as in one process."""
    wrong = [f"{name} off by {by:.1e}" for name, by in off.items() if not by <= 1e-10]
    return ", ".join(wrong[:2]) or "all as in one process"


SYMBOLIC = [test_micro_batches, test_join]
"""Who owns what, before any number is computed."""
