"""How channels share the tags of MPI.

MPI has one number, the tag, to tell the messages of two ranks apart, from 0 to a limit that the
library sets. Here it carries the number of the channel and the tag inside the channel. Collectives
are many and use tag 0 alone, so tag 0 of every channel is in the lower half of the numbers, and the
upper half has a range for the other tags of a channel:

    MPI tag    0 | 1 | 2 | 3 | ...  half - 1 | half .. + TAGS - 1 | .. + 2 TAGS - 1 | ...   limit
    channel    - | 1 | 2 | 3 | ...           |         -          |        1        | 2 ...
    its tag      0 everywhere                |   1 .. TAGS - 1    | 1 .. TAGS - 1   |

("-" is the communicator itself.) Ranks number their channels alike without a message, since they
take them in the same order. The numbers are used again in the end: with Open MPI after 2**30
channels (MPICH: 2**28), and for tags other than 0 after 2**15 (2**13). An old channel must be done
by then, so a channel that lives long is best taken from a group of its own (`split`).
"""

from minidist.comm.checks import TAGS
from minidist.errors import LaunchError


class TagSpace:
    """The tags from 0 to ``limit``, which is MPI's TAG_UB."""

    def __init__(self, limit: int) -> None:
        self.half = (limit + 1) // 2
        self.ranges = self.half // TAGS
        if self.ranges < 3:
            raise LaunchError(
                f"this MPI library allows tags up to {limit}, and channels need at least "
                f"{6 * TAGS - 1}: use Open MPI or MPICH"
            )

    def tag(self, channel: int, tag: int) -> int:
        """Return MPI's tag of a tag on a channel; channel 0 is the communicator itself."""
        if tag == 0:
            return _turn(channel, self.half)
        return self.half + _turn(channel, self.ranges) * TAGS + tag


def _turn(channel: int, places: int) -> int:
    """Return the place of a channel: 0 for the communicator, the others take turns in the rest."""
    return 1 + (channel - 1) % (places - 1) if channel else 0
