"""Collectives by hand: each is one generator over a communicator, used in four ways (`steps`).

| module | collectives | right for |
|---|---|---|
| `ring` | reduce-scatter, all-gather, all-reduce, shift | large arrays |
| `segmented` | reduce-scatter, all-reduce | larger ones: adds while it sends |
| `halving` | all-reduce | in between, and large arrays on few hops |
| `doubling` | all-reduce | small arrays |
| `tree` | broadcast, reduce, all-reduce | small arrays |
| `server` | all-reduce | nothing: the baseline |
| `hierarchical` | all-reduce | several ranks on each of several nodes |
| `all_to_all` | all-to-all | tokens for experts |
| `rooted` | gather, scatter | what one rank reads or writes |

`costs` has their formulas, and `choose` puts the measured links of this machine into them.
"""

from minidist.collectives import (
    doubling,
    halving,
    hierarchical,
    ring,
    rooted,
    segmented,
    server,
    tree,
)
from minidist.collectives.all_to_all import all_to_all
from minidist.collectives.simulate import simulate
from minidist.collectives.steps import Collective, Exchange, Started, Steps, wait_all

__all__ = [
    "Collective",
    "Exchange",
    "Started",
    "Steps",
    "all_to_all",
    "doubling",
    "halving",
    "hierarchical",
    "ring",
    "rooted",
    "segmented",
    "server",
    "simulate",
    "tree",
    "wait_all",
]
