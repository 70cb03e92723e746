"""Collectives by hand: each is one generator over a communicator, used in four ways (`steps`)."""

from minidist.collectives import ring
from minidist.collectives.simulate import simulate
from minidist.collectives.steps import Collective, Exchange, Started, Steps, wait_all

__all__ = ["Collective", "Exchange", "Started", "Steps", "ring", "simulate", "wait_all"]
