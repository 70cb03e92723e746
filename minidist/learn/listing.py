"""`minidist lessons`: what there is, what is done, and where to go on.

      lesson                                            needs   minutes
    * 00  Hello, ranks                                  CPU          10
    o 01  Memory wall and compute wall                  CPU          40   weekend
    > 02  Point to point: deadlock, latency, bandwidth  CPU          45   weekend

`*` is done, `o` done after a solution was looked at, `>` the current one. "CPU" is any laptop,
"MPI" several ranks, "GPU" a GPU.
"""

import argparse

from minidist.learn.progress import chosen

MARKS = {"done": "*", "looked": "o", "": " "}


def configure(parser: argparse.ArgumentParser) -> None:
    """It has no flags."""


def main(args: argparse.Namespace) -> int:
    """Print the table."""
    current, lessons, progress = chosen(None)
    wide = max(len(one.title) for one in lessons)
    print(f"  {'lesson':{wide + 4}}  {'needs':5}  {'minutes':>7}")
    for one in lessons:
        mark = MARKS[progress.mark(one)]
        if one == current and one.id not in progress.done:
            mark = ">"
        row = f"{mark} {one.id}  {one.title:{wide}}  {one.needs.upper():5}  {one.minutes:7}"
        print(f"{row}   {'weekend' if one.weekend else ''}".rstrip())
    print("\n* done   o done after a look at a solution   > go on here: minidist lesson")
    return 0
