"""Lesson 08: what a rank holds in the course of a step at ZeRO-3, and what that sends.

    python lessons/08_zero3/demo.py                           4 ranks in this process
    minidist launch -n 4 -- python lessons/08_zero3/demo.py   4 MPI ranks

Eight equal units, whose forward takes 1 ms and whose backward takes 2 ms of a virtual clock, and
AdamW in bfloat16, 16 bytes a parameter. Counts and a virtual clock, no stopwatch: the numbers are
the same on every machine. `--figure FILE` draws what is held against time.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from minidist.comm import Link, run, world
from minidist.comm.detect import launched
from minidist.learn import demos
from minidist.nn import Parameter
from minidist.ops.half import named
from minidist.parallel.bucket import GRADIENTS, PARAMETERS
from minidist.parallel.ledger import Ledger
from minidist.parallel.mesh import Mesh
from minidist.plan.memory import CUT_FROM, State, sent
from minidist.testing.sharded import Holder, machine, reduce
from minidist.train.optimizer import AdamW
from minidist.view import charts
from minidist.view.svg import COLOURS, PAPER, Picture

UNITS, EACH = 8, 960  # units and their parameters; 960 is divided by 2, 3, 4, 5, 6 and 8
SIZE = UNITS * EACH
FORWARD = 1e-3
LINK = Link(latency=1e-6, bandwidth=2e6)  # a unit is gathered in 0.723 ms on 4 ranks
STATE = State("bfloat16", "bfloat16")
NAMES = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")
SHOWN = ("parameters", "gradients", "buffers")


class Timeline(Ledger):
    """A ledger that writes down when how much is held: parameters, gradients and buffers."""

    def __init__(self, comm):
        super().__init__(comm.rank)
        self.comm, self.points = comm, []

    def take(self, kind, nbytes):
        super().take(kind, nbytes)
        self.note()

    def give(self, kind, nbytes):
        super().give(kind, nbytes)
        self.note()

    def note(self):
        self.points.append((self.comm.time, sum(self.held[kind] for kind in SHOWN)))


class Worker(Holder):
    """A unit that writes down when it has worked."""

    def __init__(self, comm, index, own, seconds):
        super().__init__(comm, own, seconds=seconds)
        self.index, self.work = index, []

    def forward(self, x, at):
        return self._noted("F", super().forward, x, at)

    def backward(self, ctx, dy, later=None):
        return self._noted("B", super().backward, ctx, dy, later)

    def _noted(self, letter, method, *args):
        start = self.comm.time
        result = method(*args)
        self.work.append((f"{letter}{self.index}", start, self.comm.time))
        return result


class Found(NamedTuple):
    """What a rank has seen in the second of two steps, for each parameter of the model."""

    kept: float
    peak: float
    gradients: float
    parameters: float
    seconds: float
    points: list
    """(time, bytes of parameters, gradients and buffers) whenever that changes."""
    work: list
    """(name, start, stop) of each unit's forward and backward."""


def second_step(comm, stage, forward=FORWARD, shared=False):
    """Take two steps at a stage. `shared`: the last unit uses the parameters of the first, too."""
    own = [Parameter(f"w{i}", (EACH,), init=1.0) for i in range(UNITS)]
    units = [Worker(comm, i, p, forward) for i, p in enumerate(own)]
    if shared:
        units[-1].own = (own[-1], own[0])
    ledger, dtype = Timeline(comm), named(STATE.dtype)
    how = {"dtype": dtype, "grad_dtype": dtype, "ledger": ledger}
    zero = machine(Mesh(comm), stage, units, AdamW(), **how)
    for number in range(2):
        comm.barrier()
        start, before, ledger.points = comm.time, counted(comm), []
        ledger.note()
        for unit in units:
            unit.work = []
        reduce(zero, lambda p: p.data)
        took = comm.time - start
        ledger.note()
        zero.update(0.01, number + 1)
    kept = sum(ledger.held[kind] for kind in CUT_FROM)
    moved = [(b - a) / dtype.itemsize / SIZE for a, b in zip(before, counted(comm), strict=True)]
    points = [(time - start, held / SIZE) for time, held in ledger.points]
    work = [(name, a - start, b - start) for unit in units for name, a, b in unit.work]
    return Found(kept / SIZE, ledger.peak_total / SIZE, *moved, took, points, work)


def counted(comm):
    """The bytes of gradients and of parameters that this rank has sent so far."""
    return [comm.traffic.by[kind].bytes for kind in (GRADIENTS, PARAMETERS)]


def table(ranks, found, timed=True):
    """Print a row for each stage; `found` are the results of all ranks by stage."""
    print(f"{SIZE:,} parameters in {UNITS} units; for each parameter, on the busiest rank\n")
    clock = f"{'a step takes':>16}" if timed else ""
    print(f"{'':16}{'bytes kept':>12}{'at most':>9}{'sent':>8}{'formula':>9}{clock}")
    for stage, of_ranks in enumerate(found):
        kept, peak, gradients, parameters, took = (
            max(one[i] for one in of_ranks) for i in range(5)
        )
        clock = f"{1e3 * took:13.2f} ms" if timed else ""
        print(
            f"{NAMES[stage]:16}{kept:12.2f}{peak:9.2f}{gradients + parameters:8.2f}"
            f"{float(sum(sent(stage, ranks))):9.2f}{clock}"
        )


def more():
    """What overlap is worth at stage 3, and what a shared table costs."""
    compute = 3 * UNITS * FORWARD
    messages = max(one.seconds for one in run(second_step, 3, 0.0, ranks=4, links=wire))
    print(f"\nWithout messages a step takes {1e3 * compute:.2f} ms; ", end="")
    print(f"messages alone, at stage 3, take {1e3 * messages:.2f} ms.")
    tied = run(second_step, 3, FORWARD, True, ranks=4, links=wire)[0]
    print(
        f"If the last unit uses the first one's parameters, too, {tied.parameters:.4f} elements of "
        f"parameters\nare sent for each, and {tied.gradients:.4f} of gradients: "
        "gathered for each user, reduced once."
    )


def wire(a, b):
    """Each rank has a wire to each other one."""
    return LINK


# --- the figure -----------------------------------------------------------------------------------


LEFT, WIDTH, FLOOR, BYTE = 60, 560, 252, 48  # places and scales of the picture
LOOKS = {"data parallel": COLOURS[4], "ZeRO-2": COLOURS[1], "ZeRO-3": COLOURS[0]}


def figure(found):
    """What rank 0 holds of parameters, gradients and buffers, against time."""
    picture = Picture(
        740,
        "Parameters, gradients and buffers on one of 4 ranks, 8 units",
        "Data parallelism holds 4 bytes for each parameter all the time. ZeRO-2 holds 2.5, and in "
        "backward one or two gradients of units more. ZeRO-3 holds 1, and a saw-tooth on top: in "
        "forward the unit that runs and the next one, in backward their gradients as well.",
    )
    scale = WIDTH / (max(one.seconds for of_ranks in found for one in of_ranks) * 1.02)
    picture.text(10, 22, picture.title, size=15, bold=True)
    picture.text(10, 40, "bytes held for each parameter", size=12)
    axes(picture, scale)
    for stage in (3, 2, 0):
        stairs(picture, NAMES[stage], found[stage][0].points, scale)
    for name, start, stop in found[3][0].work:
        block(picture, name, LEFT + start * scale, (stop - start) * scale)
    return picture.svg(340)


def axes(picture, scale):
    """Lines and numbers of both axes."""
    for held in range(5):
        y = FLOOR - held * BYTE
        picture.line([(LEFT, y), (LEFT + WIDTH, y)])
        picture.text(LEFT - 8, y + 4, str(held), size=12, anchor="end")
    for ms in range(0, 26, 5):
        picture.text(LEFT + ms * 1e-3 * scale, 304, f"{ms} ms", size=12, anchor="middle")
    picture.text(10, 278, "ZeRO-3", size=12)
    told = "forward (F) and backward (B) of each unit, on a virtual clock"
    picture.text(LEFT, 328, told, size=12)


def stairs(picture, label, points, scale):
    """A line that stays level until the next point, and its name at its end; ZeRO-3's is filled."""
    way, last = [], None
    for time, held in points:
        x, y = LEFT + time * scale, FLOOR - held * BYTE
        way += [(x, y)] if last is None else [(x, last), (x, y)]
        last = y
    colour = LOOKS[label]
    if label == "ZeRO-3":
        picture.area([*way, (way[-1][0], FLOOR), (way[0][0], FLOOR)], colour, 0.15)
    picture.line(way, colour, thick=2)
    picture.text(LEFT + WIDTH + 6, last + 4, label, fill=colour)


def block(picture, name, x, width):
    """A unit at work, in the lane below."""
    picture.rect(x, 264, width, 20, COLOURS[0 if name[0] == "F" else 3], edge=PAPER, thick=1)
    picture.text(x + width / 2, 278, name, size=10, fill=PAPER, anchor="middle")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw memory against time")
    args = parser.parse_args()
    if launched():
        comm = world()
        found = [comm.gather_objects(second_step(comm, stage, 0.0)) for stage in range(4)]
        if comm.rank == 0:
            print(demos.counted(comm.size, "MPI rank"), end=": ")
            table(comm.size, found, timed=False)
        return
    found = [run(second_step, stage, ranks=4, links=wire) for stage in range(4)]
    print("4 ranks in this process", end=": ")
    table(4, found)
    more()
    if args.figure:
        charts.write(args.figure, figure(found))
        print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
