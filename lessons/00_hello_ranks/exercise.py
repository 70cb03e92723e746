"""Lesson 00: hello, ranks. Fill in the three blanks, from top to bottom; each is a line or two.

    ./run check 00          which blank is next, or the smallest case that goes wrong

A program of many ranks is one function, and every rank runs it from the first line to the last.
What a rank does differently follows from two numbers that its communicator tells it:

    comm.rank       which one am I?     0, 1, ... comm.size - 1
    comm.size       how many are we?

Nothing is shared: a variable of one rank is not there on another one. What a rank wants to know of
the others must travel. For small things of any kind there is

    comm.gather_objects(value)      every rank brings a value; every rank gets the list of all of
                                    them, in the order of the ranks
"""

import os
import platform

from minidist.roster import Row


def bounds(n, parts):
    """Return the ``parts + 1`` offsets that cut ``range(n)`` into consecutive pieces.

    Piece ``i`` is ``offsets[i]:offsets[i + 1]``. The first offset is 0, the last is n, and pieces
    differ in length by one at most, the longer ones first:

        bounds(4, 3) == [0, 2, 3, 4]             3 ranks own [0:2], [2:3], [3:4]
        bounds(10, 4) == [0, 3, 6, 8, 10]        pieces of 3, 3, 2, 2
        bounds(2, 4) == [0, 1, 2, 2, 2]          pieces of 1, 1, 0, 0: empty pieces are legal
    """
    small, extra = divmod(n, parts)  # small: what every piece has; extra: so many have one more
    raise NotImplementedError("00.1: return the list of the parts + 1 offsets, from 0 to n")


def share(comm, n):
    """Return ``(start, stop)``: this rank's piece of ``range(n)``, with one piece per rank.

    3 ranks, n = 4: rank 0 returns (0, 2), rank 1 returns (2, 3), rank 2 returns (3, 4). Every rank
    can work out the whole cut for itself, so nobody is asked and nothing is sent.
    """
    raise NotImplementedError("00.2: cut n with bounds, and return the two offsets of this rank")


def roster(comm, device):
    """Return a row for each rank, in the order of ranks, on every rank. All ranks call it.

    ``device`` is the name of what this rank computes on, such as "cpu". A row is a
    ``Row(rank, host, process, device)``: the host is ``platform.node()``, the process is
    ``os.getpid()``. 2 ranks of process 71402 on the machine ant, with "cpu" and "cuda:0", both get

        [Row(0, "ant", 71402, "cpu"), Row(1, "ant", 71402, "cuda:0")]
    """
    raise NotImplementedError("00.3: make this rank's own row, and gather the rows of all ranks")
