"""The ways of PyTorch, over gloo or NCCL, beside which `collectives` sets ours: in `ways`' form.

Its reductions and broadcasts are in place only, and it cuts arrays into equal pieces only.
"""

from typing import Any

import numpy as np
from mpi4py import MPI
from problems import Call, Problem, Way
from ways import returning

from minidist.arrays import Array
from minidist.comm import Comm
from minidist.device import Device
from minidist.errors import ConfigError


def torch_ways(backend: str, comm: Comm, device: Device) -> dict[str, Way]:
    """Return PyTorch's way of each collective. All ranks call it; raises ConfigError if it cannot.

    The backends of one run share the ranks' first meeting.
    """
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise ConfigError(f"--against {backend} needs PyTorch: pip install torch") from None
    if not dist.is_backend_available(backend):
        raise ConfigError(f"this PyTorch has no {backend}: leave out --against {backend}")
    if (backend == "nccl") != (device.kind == "cuda"):
        needed = "cuda" if backend == "nccl" else "cpu"
        raise ConfigError(f"--against {backend} needs --device {needed}")
    torch.set_num_threads(1)
    if device.kind == "cuda":
        torch.cuda.set_device(device.index)
    if not dist.is_initialized():
        store = meeting_point(comm, dist)
        dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)
    return Torch(torch, dist.new_group(backend=backend)).ways()


def meeting_point(comm: Comm, dist: Any) -> Any:
    """Return the store at which PyTorch's ranks find each other, on a port that is free."""
    host = MPI.Get_processor_name() if comm.size > 1 else "localhost"
    store = dist.TCPStore(host, 0, comm.size, True, wait_for_workers=False) if not comm.rank else 0
    host, port = comm.bcast_object((host, store.port if store else 0))
    return store or dist.TCPStore(host, port, comm.size, False, wait_for_workers=False)


class Torch:
    """PyTorch's collectives in one group of ranks. Tensors share the memory of the arrays."""

    def __init__(self, torch: Any, group: Any) -> None:
        self.torch, self.dist, self.group = torch, torch.distributed, group

    def newest(self, *names: str) -> Any:
        """Return the first of these functions that this PyTorch has: two have changed names."""
        return next(getattr(self.dist, name) for name in names if hasattr(self.dist, name))

    def ways(self) -> dict[str, Way]:
        return {
            "all_reduce": self.all_reduce,
            "reduce_scatter": self.reduce_scatter,
            "all_gather": self.all_gather,
            "broadcast": self.broadcast,
            "reduce": self.reduce,
            "all_to_all": self.all_to_all,
            "gather": self.gather,
            "scatter": self.scatter,
        }

    def tensor(self, x: Array) -> Any:
        if x.dtype.name == "bfloat16":  # which dlpack does not know
            return self.torch.from_dlpack(x.view(np.int16)).view(self.torch.bfloat16)
        return self.torch.from_dlpack(x)

    def op(self, p: Problem) -> Any:
        return getattr(self.dist.ReduceOp, p.op.upper())

    def all_reduce(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        if out is not None:
            return None
        t, op = self.tensor(x), self.op(p)
        return returning(x, lambda: self.dist.all_reduce(t, op, group=self.group))

    def reduce(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        if out is not None:
            return None
        t, op = self.tensor(x), self.op(p)
        return returning(x, lambda: self.dist.reduce(t, p.root, op, group=self.group))

    def broadcast(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        t = self.tensor(x)
        return returning(x, lambda: self.dist.broadcast(t, p.root, group=self.group))

    def reduce_scatter(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        if out is None or not even(p):
            return None
        do = self.newest("reduce_scatter_single", "reduce_scatter_tensor")
        t, to, op = self.tensor(x), self.tensor(out), self.op(p)
        return returning(out, lambda: do(to, t, op, group=self.group))

    def all_gather(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        if out is None or not even(p):
            return None
        do = self.newest("all_gather_single", "all_gather_into_tensor")
        t, to = self.tensor(x), self.tensor(out)
        return returning(out, lambda: do(to, t, group=self.group))

    def all_to_all(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        t, to = self.tensor(x), self.tensor(out)
        came = [p.lengths[p.comm.rank]] * p.comm.size
        return returning(
            out, lambda: self.dist.all_to_all_single(to, t, came, p.lengths, group=self.group)
        )

    def gather(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        if not even(p):
            return None
        t, at_root = self.tensor(x), p.comm.rank == p.root
        to = list(self.tensor(out).chunk(p.comm.size)) if at_root else None
        return returning(out, lambda: self.dist.gather(t, to, p.root, group=self.group))

    def scatter(self, p: Problem, x: Array, out: Array | None) -> Call | None:
        if not even(p):
            return None
        t, at_root = self.tensor(out), p.comm.rank == p.root
        pieces = list(self.tensor(x).chunk(p.comm.size)) if at_root else None
        return returning(out, lambda: self.dist.scatter(t, pieces, p.root, group=self.group))


def even(p: Problem) -> bool:
    """Say whether all pieces are equally long."""
    return p.count % p.comm.size == 0
