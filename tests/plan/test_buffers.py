"""What a step lends and gathers at once: never above the formula, and as much on a slow network."""

from itertools import product

import numpy as np
import pytest

from minidist.comm import Link, run
from minidist.parallel.mesh import Mesh
from minidist.parallel.zero import LENT, Zero
from minidist.plan import buffers
from minidist.plan.buffers import Sized, gathered, lent
from minidist.testing.mutants import mutate, rebind
from minidist.train.memory_report import buffer_bytes
from minidist.train.optimizer import SGD
from tests.parallel.stubs import Stub, odd_model, steps, vector
from tests.tiers import fast_and_slow

SLOW, FAST = Link(1.0, 1e3), Link(0.0, 1e9)


def equal_units(comm):
    """Eight units of 100 elements that take longer than no time."""
    return [Stub(comm, vector(f"w{i}", 100), seconds=1e-6) for i in range(8)]


def tied_units(comm):
    """A large table that the first and the last unit share, frozen weights, and uneven units."""
    table, ice = vector("table", 70), vector("ice", 90, trainable=False)
    own = [vector(f"w{i}", n) for i, n in enumerate((5, 30, 0, 20))]
    return [Stub(comm, table), *(Stub(comm, p, seconds=1e-6) for p in own), Stub(comm, table, ice)]


def peaks(make, stage, ranks, link, kind=Zero, bound=buffer_bytes):
    """What each rank has had at most, and the formula."""

    def program(comm):
        sync = kind(make(comm), SGD(), Mesh(comm), stage, dtype=np.float64)
        steps(comm, sync, 2, 3)
        return sync.ledger.peak["buffers"], bound(sync)

    return run(program, ranks=ranks, links=link)


@pytest.mark.parametrize("make", [equal_units, tied_units, odd_model])
@pytest.mark.parametrize(
    ("stage", "ranks"), fast_and_slow(list(product(range(4), [1, 3, 2, 5])), 1, 2)
)
def test_no_more_than_the_bound(make, stage, ranks):
    for link in (SLOW, FAST):
        for peak, bound in peaks(make, stage, ranks, link):
            assert peak <= bound
            assert stage >= 2 or bound == 0


def check_tight(kind=Zero, bound=buffer_bytes):
    """Equal units reach the bound at stage 2, and at stage 3 all but the two together."""
    found = peaks(equal_units, 2, 3, SLOW, kind, bound)
    assert {b for _, b in found} == {(LENT + 1) * 800} == {max(p for p, _ in found)}
    found = peaks(equal_units, 3, 3, SLOW, kind, bound)
    assert {b for _, b in found} == {(LENT + 1 + 2) * 800}
    assert max(p for p, _ in found) >= (LENT + 1 + 1) * 800
    found = peaks(tied_units, 2, 3, SLOW, kind, bound)
    assert all(p <= b for p, b in found)


def test_the_bound_is_reached():
    check_tight()


def by(**changed):
    """`buffer_bytes` over another formula."""
    return rebind(buffer_bytes, **changed)


WRONG = {
    "more under way": {"kind": rebind(Zero, LENT=3)},
    "what is filled is forgotten": {
        "bound": by(lent=mutate(lent, "for b in reduced) + filled", "for b in reduced)"))
    },
    "the next unit is forgotten": {
        "bound": by(
            gathered=rebind(
                gathered, _neighbours=mutate(buffers._neighbours, "u + 1 in b.users", "False")
            )
        )
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_another_bound_is_seen(name):
    with pytest.raises(AssertionError):
        check_tight(**WRONG[name])


def test_by_hand():
    """Units 0 and 2 share a table of 7: it is being filled while unit 1 works on its 5."""
    sized = [Sized((0, 2), 7), Sized((1,), 5), Sized((2,), 4, False)]
    assert lent(2, sized, 2) == 2 * 7 + 7 + 5
    assert gathered(3, 2, sized) == 7 + 5 + 4
    assert lent(1, sized, 2) == gathered(2, 2, sized) == gathered(3, 1, sized) == 0
    assert lent(3, [], 2) == gathered(3, 2, []) == 0
