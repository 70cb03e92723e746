"""Lesson 02: the send-send that works for small messages, and what a message costs.

    python lessons/02_point_to_point/demo.py                         on a virtual clock: exact
    ./run launch -n 2 -- python lessons/02_point_to_point/demo.py    two processes: measured
    python lessons/02_point_to_point/demo.py --hang                  two processes that hang

`--figure FILE` draws the time of a message against its size, on the virtual clock.
"""

import argparse
import sys
from itertools import islice
from pathlib import Path

import numpy as np

from minidist import processes
from minidist.comm import Link, run, world
from minidist.comm.detect import launched
from minidist.errors import ConfigError, DeadlockError
from minidist.learn import demos
from minidist.network import fit, knee, ping_pong
from minidist.view import charts
from minidist.view.units import readable

LINKS = {"one node": Link(1e-6, 8e9), "two nodes": Link(20e-6, 1.25e9)}
SIZES = [2**k for k in range(0, 25, 2)]  # 1 byte to 16 MiB
SMALL, LARGE = 1 << 10, 1 << 20
PATIENCE = "1"  # seconds in one wait after which a rank says for what


def send_first(comm, nbytes):
    """Both ranks send, then receive: the wrong program of this lesson."""
    if comm.rank < 2:
        x, y = np.full(nbytes, comm.rank, np.uint8), np.empty(nbytes, np.uint8)
        comm.send(x, 1 - comm.rank)
        comm.recv(y, 1 - comm.rank)


def outcome(program, nbytes, synchronous):
    """What becomes of a program on two ranks inside this process."""
    try:
        run(program, nbytes, ranks=2, synchronous=synchronous)
    except DeadlockError as error:
        return str(error).replace("\n", "\n      ")
    return "finished"


def exchange(comm, nbytes):
    """The same with both halves at once."""
    x, y, other = np.zeros(nbytes, np.uint8), np.empty(nbytes, np.uint8), 1 - comm.rank
    comm.exchange(x, other, y, other)


def show_deadlock():
    print("two ranks, both send first")
    print(f"   the library keeps a copy      {outcome(send_first, SMALL, synchronous=False)}")
    print(f"   a send waits for its receive  {outcome(send_first, LARGE, synchronous=True)}")
    print("two ranks, exchange")
    print(f"   a send waits for its receive  {outcome(exchange, LARGE, synchronous=True)}")


def show_hang():
    """The same on two MPI ranks, with a look at how long they wait."""
    for nbytes in (SMALL, LARGE):
        command = [sys.executable, "-m", "minidist", "launch", "-n", "2", "--", __file__]
        job = processes.start(
            [*command, "--send-first", str(nbytes)], Path.cwd(), {"MINIDIST_PATIENCE": PATIENCE}
        )
        with processes.ended(job):
            said = list(islice((line for line in job.stderr if "has waited" in line), 2))
            try:
                processes.finish(job, 0 if said else 60)
                print(f"{readable(nbytes, 'bytes'):>8}  finished", flush=True)
            except TimeoutError:
                print(f"{readable(nbytes, 'bytes'):>8}  hangs, and was ended; its ranks said")
                print("".join(f"          {line}" for line in said), end="")


def times(link):
    """Seconds of one message of each size, on the virtual clock of two ranks with this link."""
    return [run(ping_pong, np.zeros(n, np.uint8), ranks=2, links=link)[0] for n in SIZES]


def show_times(sizes, seconds, link):
    """Measured beside the line through them."""
    print(f"{'bytes':>12} {'us':>12} {'line, us':>12} {'off by':>8}")
    for n, t in zip(sizes, seconds, strict=True):
        line = link.latency + n / link.bandwidth
        print(f"{n:12} {t * 1e6:12.2f} {line * 1e6:12.2f} {abs(line / t - 1):8.0%}")
    print(
        f"latency {readable(link.latency, 'seconds')}, "
        f"bandwidth {readable(link.bandwidth, 'bytes/s')}, knee {knee(link):,.0f} bytes"
    )


def on_real_ranks(comm):
    """Ping-pong between ranks 0 and 1; the others look on. Predicted is the line of the fit."""
    if comm.size < 2:
        print("1 rank: a message to another rank needs two, ./run launch -n 2 -- ...")
        return
    seconds = [ping_pong(comm, np.zeros(n, np.uint8), repeats=20) for n in SIZES]
    comm.barrier()
    if comm.rank == 0:
        print(f"measured between ranks 0 and 1 of {comm.size}, and the line through it")
        try:
            show_times(SIZES, seconds, fit(SIZES, seconds))
        except ConfigError as error:  # times of a machine that is busy lie on no line
            print(f"none: {error}. Is this machine busy? Try again")


def figure():
    """Points from the virtual clock, lines from latency + n / bandwidth."""
    series, marks = [], []
    for name, link in LINKS.items():
        dense = [2 ** (k / 4) for k in range(4 * 24 + 1)]
        line = [link.latency + n / link.bandwidth for n in dense]
        series += [
            charts.Series(name, SIZES, times(link), "points"),
            charts.Series(name, dense, line, "line"),
        ]
        marks.append(charts.Mark(knee(link), 2 * link.latency, f"knee {knee(link):,.0f} bytes"))
    return charts.lines(
        series,
        x=charts.Axis("size of the message", "bytes"),
        y=charts.Axis("time of one message", "seconds"),
        title="One message: flat, then in proportion to its size",
        words="On one node a message takes 1 us up to a few thousand bytes, between two nodes "
        "20 us; beyond the knee, at 8,000 and 25,000 bytes, twice the bytes take twice the time.",
        marks=marks,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hang", action="store_true", help="start two MPI ranks that hang")
    parser.add_argument("--send-first", metavar="BYTES", type=int, help="what --hang starts")
    parser.add_argument("--figure", metavar="FILE", type=Path, help="draw time against size as SVG")
    args = parser.parse_args()
    if args.hang:
        show_hang()
    elif args.send_first is not None:
        if args.send_first < 0:
            raise ConfigError(f"--send-first {args.send_first}: a message has 0 bytes or more")
        send_first(world(), args.send_first)
    elif launched():
        on_real_ranks(world())
    else:
        show_deadlock()
        for name, link in LINKS.items():
            print(f"\nvirtual clock, {name}")
            seconds = times(link)
            show_times(SIZES, seconds, fit(SIZES, seconds))
        if args.figure:
            charts.write(args.figure, figure())
            print(f"\nfigure: {args.figure}")


if __name__ == "__main__":
    demos.play(main)
