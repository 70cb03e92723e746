"""Where a rank computes: the CPU, or one of the GPUs of its own machine.

    machine "a": rank 0 -> GPU 0, rank 1 -> GPU 1        a rank's number on its machine,
    machine "b": rank 2 -> GPU 0, rank 3 -> GPU 1        modulo the GPUs that it can see

Two ranks on one GPU compute correctly but slowly, and mostly by mistake: that is an error until
`--share-devices` says that it is meant. Launchers export a local rank (LOCAL_RANK,
SLURM_LOCALID, ...) under many names, and a stale one in a shell misleads. Here the ranks tell each
other their host names, which works under every launcher. Some launchers show each rank one GPU
of its own, all called number 0, so GPUs are compared by their unique names.
"""

import platform
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from minidist.cuda import gpu_available
from minidist.errors import ConfigError, DeviceError

if TYPE_CHECKING:
    from minidist.comm import Comm

gpu = gpu_available  # the name that whoever chooses devices knows it by
KINDS = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Device:
    """One rank's device: `kind` "cpu" or "cuda", `index` on its machine, array module `xp`."""

    kind: str
    index: int
    xp: Any
    label: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.index} ({self.label})" if self.label else self.kind


class Sight(NamedTuple):
    """What one rank sees: its host, a unique name for each GPU, and why there is none."""

    host: str
    gpus: tuple[str, ...]
    reason: str = ""


def look() -> Sight:
    """Return what this process sees on this machine. Never raises."""
    works, reason = gpu()
    if not works:
        return Sight(platform.node(), (), reason)
    runtime = import_module("cupy").cuda.runtime
    every = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
    names = tuple(f"{p['name'].decode()} {bytes(p['uuid'])[:4].hex()}" for p in every)
    return Sight(platform.node(), names)


def choose_device(
    name: str, comm: "Comm", share: bool = False, look: Callable[[], Sight] = look
) -> Device:
    """Return this rank's device. Every rank of `comm` calls it, with the same arguments.

    "cpu" is what it says; "cuda" takes a GPU or raises DeviceError; "auto" takes GPUs when every
    rank sees one, else every rank takes the CPU. More ranks than GPUs on a machine is a
    DeviceError; with `share` it is one warning. Control messages only; no array is moved.
    """
    if name not in KINDS:
        raise ConfigError(f"no device '{name}': choose one of {', '.join(KINDS)}")
    if name == "cpu":
        return Device("cpu", 0, import_module("numpy"))
    sights: list[Sight] = comm.gather_objects(look())
    blind = [rank for rank, sight in enumerate(sights) if not sight.gpus]
    if blind and name == "auto":
        return Device("cpu", 0, import_module("numpy"))
    if blind:
        first = sights[blind[0]]
        raise DeviceError(
            f"rank {blind[0]} on {first.host} has no usable GPU ({first.reason}): "
            "use --device cpu, or ask `minidist doctor` for the remedy"
        )
    indices = assign(sights)
    refuse_crowds(sights, indices, share, warn=comm.rank == 0)
    index = indices[comm.rank]
    cupy = import_module("cupy")
    cupy.cuda.Device(index).use()
    return Device("cuda", index, cupy, sights[comm.rank].gpus[index])


def assign(sights: list[Sight]) -> list[int]:
    """Return each rank's GPU number: its place among the ranks of its host, modulo its GPUs."""
    hosts = [sight.host for sight in sights]
    return [hosts[:rank].count(s.host) % len(s.gpus) for rank, s in enumerate(sights)]


def refuse_crowds(sights: list[Sight], indices: list[int], share: bool, warn: bool) -> None:
    """Raise DeviceError if two ranks were given one GPU, or warn if `share` allows it."""
    users: dict[tuple[str, str], list[int]] = {}
    for rank, (sight, index) in enumerate(zip(sights, indices, strict=True)):
        users.setdefault((sight.host, sight.gpus[index]), []).append(rank)
    crowds = {where: ranks for where, ranks in users.items() if len(ranks) > 1}
    if not crowds:
        return
    (host, device), ranks = next(iter(crowds.items()))
    text = f"ranks {', '.join(map(str, ranks))} on {host} share one GPU ({device})"
    if not share:
        raise DeviceError(f"{text}: start fewer ranks, or say --share-devices or --device cpu")
    if warn:
        warnings.warn(f"{text}: correct, but slow", stacklevel=3)
