"""Wrong worlds, and the tests that find them: a checker that never failed is not a checker."""

import numpy as np
import pytest

from minidist.comm import inprocess, postoffice, run, scheduler, scratch
from minidist.errors import MinidistError
from minidist.testing import contract
from minidist.testing.mutants import MutantError, mutate, rebind
from tests.comm import test_clock as clock
from tests.comm import test_groups as groups
from tests.comm import test_messages as messages
from tests.comm import test_scheduler as schedules

# How a test ends that finds something; hypothesis groups two different failures of one property.
FOUND = (AssertionError, MinidistError, ValueError, ExceptionGroup, pytest.fail.Exception)


def order():
    run(contract.all_pairs_in_order, ranks=3)


def tags():
    run(contract.tags_and_channels, ranks=3)


def sizes():
    for sent, wanted in [(np.zeros(10), np.zeros(8)), (np.zeros(8), np.zeros(8, np.float32))]:
        messages.test_another_size_or_dtype_is_an_error_that_names_both_sides(sent, wanted)


def shared_card():
    clock.test_a_shared_card_is_one_wire()


MUTANTS = [
    # what is wrong, where, old text, new text, the test that must find it
    ("last come, first served", postoffice._first, "box.popleft()", "box.pop()", order),
    (
        "no copy",
        postoffice.PostOffice,
        "message.data.copy()",
        "message.data",
        messages.test_a_send_is_a_copy,
    ),
    (
        "synchronous sends are buffered",
        postoffice.InProcessRequest,
        "self.message.taken_at if self.office.synchronous else 0.0",
        "0.0",
        lambda: messages.test_sending_first_on_both_sides_is_a_deadlock_whatever_the_size(2, 64),
    ),
    (
        "sizes unchecked",
        postoffice.InProcessRequest,
        "(data.size, data.dtype, theirs.op,",
        "(self.x.size, self.x.dtype, theirs.op,",
        sizes,
    ),
    (
        "labels unchecked",
        postoffice.InProcessRequest,
        "theirs.op, theirs.label)",
        "theirs.op, mine.label)",
        schedules.test_two_swapped_collectives_of_equal_size_are_found,
    ),
    (
        "operations unchecked",
        postoffice.InProcessRequest,
        "theirs.op, theirs.label)",
        "mine.op, theirs.label)",
        schedules.test_another_operation_is_found,
    ),
    (
        "a wire that is never busy",
        postoffice.PostOffice,
        "begin = max(now, self.busy_until[wire])",
        "begin = now",
        clock.test_messages_queue_on_their_wire,
    ),
    (
        "every pair has its own card",
        postoffice.PostOffice,
        "link.name or (source, to)",
        "(source, to)",
        shared_card,
    ),
    (
        "latency is paid twice",
        postoffice.PostOffice,
        "self.busy_until[wire] + link.latency",
        "self.busy_until[wire] + 2 * link.latency",
        lambda: clock.test_ring_takes_the_alpha_beta_time(3, 0),
    ),
    (
        "tags are ignored",
        inprocess.InProcessComm,
        "Address(self.context, self.number, tag, self._me",
        "Address(self.context, self.number, 0, self._me",
        tags,
    ),
    (
        "one channel for all",
        inprocess.InProcessComm,
        "Address(self.context, self.number, tag, self._me",
        "Address(self.context, 0, tag, self._me",
        tags,
    ),
    (
        "groups share one context",
        inprocess.InProcessComm,
        "next(self._channels), color)",
        "next(self._channels))",
        groups.test_a_split_of_a_split,
    ),
    (
        "keys are ignored",
        inprocess.InProcessComm,
        "sorted((k, r) for",
        "sorted((0, r) for",
        groups.test_split_groups_by_color_and_orders_by_key_then_rank,
    ),
    (
        "split traffic is lost",
        inprocess.InProcessComm,
        "            self.traffic,\n",
        "",
        groups.test_traffic_counts_per_operation_and_into_the_parent,
    ),
    (
        "always the first rank",
        scheduler.Scheduler,
        "self.random.randrange(len(candidates))",
        "0",
        schedules.test_a_seed_is_an_order_of_events,
    ),
    (
        "the clock does not choose",
        scheduler.Scheduler,
        "if self.ready[r] == first",
        "",
        clock.test_a_shared_wire_serves_in_order_of_time_whatever_the_seed,
    ),
]


@pytest.mark.parametrize(
    ("target", "old", "new", "test"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS]
)
def test_wrong_worlds_are_found(monkeypatch, target, old, new, test):
    broken = mutate(target, old, new)
    name = broken.__name__
    if target is postoffice._first:
        broken, name = rebind(postoffice.PostOffice, _first=broken), "PostOffice"
    if name == "InProcessRequest":
        monkeypatch.setattr(postoffice, name, broken)
    monkeypatch.setattr(inprocess, name, broken)
    with pytest.raises(FOUND):
        test()


def test_two_borrowers_of_one_buffer_are_found(monkeypatch):
    broken = mutate(scratch.Scratch, "free.pop() if free else None", "free[-1] if free else None")
    from minidist.comm import base

    monkeypatch.setattr(base, "Scratch", broken)
    with pytest.raises(AssertionError):
        groups.test_work_buffers_are_lent_again_and_never_to_two(3)


def test_a_mutant_that_does_not_apply_is_an_error():
    with pytest.raises(MutantError, match="'no such text' 0 times"):
        mutate(run, "no such text", "")
    with pytest.raises(MutantError, match="times, not once"):
        mutate(run, "rank", "knar")
