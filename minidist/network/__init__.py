"""What the links of this machine cost: a ping-pong, the line through it, and a place to keep it.

`ping_pong` measures the seconds of one message between two ranks; `fit` lays the line
latency + n / bandwidth through such times. `levels` says which kind of link two ranks have: same
process, same node, other node. `measured` is all of that for this machine, on disk, which
`minidist measure-links` fills.
"""

from minidist.network.fit import fit, knee, worst_error
from minidist.network.levels import LEVELS, level, place
from minidist.network.measured import DEFAULT, Measured, load, save
from minidist.network.pingpong import ping_pong

__all__ = [
    "DEFAULT",
    "LEVELS",
    "Measured",
    "fit",
    "knee",
    "level",
    "load",
    "ping_pong",
    "place",
    "save",
    "worst_error",
]
