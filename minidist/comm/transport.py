"""How the messages of one MPI world travel: the settings that all its communicators share.

MINIDIST_DEBUG=1        check every message before it is received
MINIDIST_SYNCHRONOUS=1  every send waits for its receive: shows programs that rely on buffering
MINIDIST_PATIENCE=60    seconds of waiting after which a rank says for what; 0 for never
MINIDIST_CUDA_AWARE=0   or 1: overrides what the MPI library says of itself
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from minidist.comm.cuda_aware import cuda_aware
from minidist.comm.patience import Patience
from minidist.comm.staging import Staging
from minidist.errors import ConfigError


@dataclass
class Transport:
    """The settings. ``largest``: bytes in one MPI message; longer messages are cut."""

    debug: bool
    synchronous: bool
    patience: Patience
    staging: Staging
    largest: int = 1 << 30


def from_environment(
    rank: int, debug: bool | None = None, env: Mapping[str, str] = os.environ
) -> Transport:
    """Return the settings of a rank; ``debug``, if given, wins over the environment."""
    return Transport(
        debug=_number(env, "MINIDIST_DEBUG", 0) != 0 if debug is None else debug,
        synchronous=_number(env, "MINIDIST_SYNCHRONOUS", 0) != 0,
        patience=Patience(rank, _number(env, "MINIDIST_PATIENCE", 60)),
        staging=Staging(cuda_aware, _say if rank == 0 else _say_nothing),
    )


def _number(env: Mapping[str, str], variable: str, default: float) -> float:
    text = env.get(variable) or str(default)
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is not a number") from None


def _say(line: str) -> None:
    print(f"minidist: {line}", file=sys.stderr, flush=True)


def _say_nothing(line: str) -> None:
    """Only rank 0 speaks of what is the same for all."""
