"""`minidist hint NN.k`: the next of the three hints for a blank.

The first asks a question, the second points in a direction, the third is nearly the answer. Which
ones were shown is kept in the progress; all that were shown are shown again.
"""

import argparse

from minidist.errors import LessonError
from minidist.learn import manifest, progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("blank", metavar="NN.k", help="number of the blank: 03.2")


def main(args: argparse.Namespace) -> int:
    """Print the hints so far and one more."""
    _, blank = manifest.find_blank(manifest.load(), args.blank)
    done = progress.load(manifest.lessons_folder())
    count = min(done.hints.get(blank.id, 0) + 1, len(blank.hints))
    print(f"{blank.id}  {blank.name}")
    for number, hint in enumerate(blank.hints[:count], 1):
        print(f"\nhint {number} of {len(blank.hints)}: {hint}")
    if done.hints.get(blank.id, 0) == len(blank.hints):
        print(f"\nThat is all. The package's own version: minidist solution {blank.id}")
    else:
        try:
            done.note("hint", blank.id, str(count))
        except LessonError as error:  # the hint is there all the same
            print(f"\n({error}; the next hint will be this one again)")
    return 0
