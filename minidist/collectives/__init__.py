"""Collectives by hand: each is one generator over a communicator, used in four ways (`steps`).

| module | collectives | right for |
|---|---|---|
| `ring` | reduce-scatter, all-gather, all-reduce | large arrays |
| `halving` | all-reduce | in between, and large arrays on few hops |
| `tree` | broadcast, reduce | small arrays |
| `server` | all-reduce | nothing: the baseline |
| `hierarchical` | all-reduce | several ranks on each of several nodes |
| `all_to_all` | all-to-all | tokens for experts |
| `rooted` | gather, scatter | what one rank reads or writes |
"""

from minidist.collectives import halving, hierarchical, ring, rooted, server, tree
from minidist.collectives.all_to_all import all_to_all
from minidist.collectives.simulate import simulate
from minidist.collectives.steps import Collective, Exchange, Started, Steps, wait_all

__all__ = [
    "Collective",
    "Exchange",
    "Started",
    "Steps",
    "all_to_all",
    "halving",
    "hierarchical",
    "ring",
    "rooted",
    "server",
    "simulate",
    "tree",
    "wait_all",
]
