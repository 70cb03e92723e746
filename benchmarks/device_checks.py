"""Models, ranks and messages on a device, beside the host; and the list of all of `gpu_check`.

A check returns a few words, raises `Skip` where something is missing, and fails by any other
exception. Another check is another function, and a line in `checks`.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
from device_kernels import kernel_checks
from device_ops import Case, Skip, Target, cases, differ, random_bits, same

from minidist import ops
from minidist.arrays import Array, to_host
from minidist.device import choose_device, gpu
from minidist.errors import LaunchError
from minidist.nn import At, DecoderConfig, allocate, build_decoder

# --- the model ----------------------------------------------------------------------------------

TINY = DecoderConfig(layers=2, width=32, heads=4, groups=2, tied=True, bias=True, dropout=0.2)


class Model:
    """A decoder with its parameters in a library, and a plain training step. No ranks."""

    def __init__(self, config: DecoderConfig, dtype: Any, xp: Any, batch: int, length: int) -> None:
        rng = np.random.default_rng(1)
        values = rng.integers(0, config.vocabulary, (batch, length + 1))
        self.tokens, labels = xp.asarray(values[:, :-1]), xp.asarray(values[:, 1:])
        self.at = At(1, True, xp.arange(batch), xp.arange(length))
        self.scale = 1.0 / labels.size
        self.units = build_decoder(config, lambda at: labels)
        self.parameters = list(dict.fromkeys(p for unit in self.units for p in unit.parameters()))
        allocate(self.parameters, dtype, xp, gradients=True)
        self.state = [(xp.zeros_like(p.data), xp.zeros_like(p.data)) for p in self.parameters]

    def gradients(self) -> Array:
        """Leave the gradient in the parameters and return the loss, a 0-d array."""
        x, contexts = self.tokens, []
        for p in self.parameters:
            p.grad[...] = 0
        for unit in self.units:
            x, ctx = unit.forward(x, self.at)
            contexts.append(ctx)
        dy: Any = self.scale
        for unit in reversed(self.units):
            dy = unit.backward(contexts.pop(), dy)
        return x

    def update(self) -> None:
        """Take one step of AdamW."""
        for p, (m, v) in zip(self.parameters, self.state, strict=True):
            flat = (x.reshape(x.size) for x in (p.data, p.grad, m, v))
            ops.adamw(*flat, 1e-3, 0.9, 0.95, 1e-8, 0.1, 1)


def decoder(target: Target, dtype: Any) -> str:
    """Loss, every gradient, and the weights after a step of AdamW with the same gradient."""
    batch, length = 2, 20
    device = Model(TINY, dtype, target.xp, batch, length)
    host = Model(TINY, np.float64, np, batch, length)
    for p, q in zip(host.parameters, device.parameters, strict=True):
        p.data = to_host(q.data).astype(np.float64)
    # Each branch of a block: norm, product, its core, product; backward passes them again.
    roundings = 2 * TINY.layers * (3 * TINY.width + TINY.inner + 10 * length) + batch * length
    worst = differ(device.gradients(), host.gradients(), roundings)
    for p, q in zip(host.parameters, device.parameters, strict=True):
        assert q.grad.dtype == dtype, f"{q.name}: {q.grad.dtype}"
        worst = max(worst, differ(q.grad, p.grad, roundings))
        p.grad = to_host(q.grad).astype(np.float64)
    for model in (host, device):
        model.update()
    for p, q in zip(host.parameters, device.parameters, strict=True):
        worst = max(worst, differ(q.data, p.data, 100))
    return f"{len(host.parameters)} parameters, error {worst:.2f} of the bound"


# --- ranks and messages -------------------------------------------------------------------------


def in_process() -> Any:
    """Return `minidist.comm.run`, which needs greenlet."""
    try:
        from minidist.comm import run
    except ImportError as error:
        raise Skip(f"no {error.name}") from None
    return run


def all_reduce(target: Target) -> str:
    """An all-reduce of four in-process ranks gives the bits that it gives on the host."""
    run = in_process()
    from minidist.collectives import ring

    sizes = (0, 1, 3, 4, 1000)

    def program(comm: Any, xp: Any) -> list[bytes]:
        rng = np.random.default_rng(comm.rank)
        arrays = [xp.asarray(rng.standard_normal(n).astype(np.float32)) for n in sizes]
        return [to_host(ring.all_reduce(comm, x)).tobytes() for x in arrays]

    got, want = (run(program, xp, ranks=4) for xp in (target.xp, np))
    assert all(bits == got[0] for bits in got), "ranks hold different bits"
    assert got == want, "other bits than on the host"
    return f"4 ranks, {len(sizes)} sizes"


def training(target: Target) -> str:
    """Three steps of `minidist train` on two ranks, at each ZeRO stage: the host's losses."""
    run = in_process()
    try:
        from minidist.parallel.mesh import Mesh
        from minidist.train.config import Layout, Session, TrainConfig
        from minidist.train.corpus import Text
        from minidist.train.folder import RunFolder
        from minidist.train.trainer import Trainer
    except ImportError as error:
        raise Skip(f"no {error.name}") from None
    config = TrainConfig(layers=2, width=32, context=16, batch=3, dtype="float64", dropout=0.1)
    text = Text("squares", bytes(i * i % 251 for i in range(2000)))

    def program(comm: Any, xp: Any, stage: int) -> list[float]:
        layout = Layout(zero=stage, micro_batches=2, recompute="unit")
        where = RunFolder("none")
        trainer = Trainer(Mesh(comm), config, layout, Session(), where, text, xp)
        return [trainer.step(step).loss for step in range(3)]

    for stage in range(4):
        got, want = (np.array(run(program, xp, stage, ranks=2)) for xp in (target.xp, np))
        differ(got, want, 0)
    return f"losses {', '.join(f'{loss:.6f}' for loss in want[0])}"


def device_choice(target: Target) -> str:
    """`choose_device` takes the GPU, and its trial kernel runs."""
    if not target.real:
        raise Skip("no GPU")
    works, reason = gpu()
    assert works, reason
    return str(in_process()(lambda comm: choose_device("cuda", comm), ranks=1)[0])


def staging(target: Target) -> str:
    """Bits survive the way through pinned host memory, though a kernel wrote them just before."""
    module, copier = target.staging()
    way, xp = module.Staged(copier), target.xp
    count = 1 << (22 if target.real else 8)
    for dtype in (np.float32, np.float16, np.int64):
        for value in (1, 2):
            x, y = xp.zeros(count, dtype), xp.zeros(count, dtype)
            for _ in range(value):
                x += value  # behind the back of the program
            buffer = way.outgoing(x)
            way.arrived(buffer, y)
            way.release(buffer)
            assert (to_host(y) == value * value).all(), f"{np.dtype(dtype)}: old data"
    return f"{count} elements of three dtypes"


def mpi(target: Target) -> str:
    """A message of this process to itself, over MPI."""
    try:
        from minidist.comm import world

        comm = world()
    except (ImportError, LaunchError) as error:
        raise Skip(str(error)) from None
    x = target.xp.arange(1 << 20).astype(np.float32)
    y = target.xp.zeros_like(x)
    comm.exchange(x, comm.rank, y, comm.rank)
    assert np.array_equal(to_host(x), to_host(y)), "the message has changed on its way"
    return comm.transport.staging.way(x).name


Check = Callable[[Target], str]


def without_kernels(target: Target, case: Case) -> str:
    with patch.dict(os.environ, MINIDIST_KERNELS="0"):
        return same(target, case, np.float32)


def checks() -> Iterator[tuple[str, Check]]:
    """Yield (name, check). MPI comes last: a faulty library may end the process."""
    yield "choose_device and a trial kernel", device_choice
    for dtype in (np.float64, np.float32):
        for name, case in cases().items():
            yield f"{name}, {dtype.__name__}", lambda t, c=case, d=dtype: same(t, c, d)
    for name, case in cases().items():  # where there are kernels, those were checked above
        yield f"{name}, array code", lambda t, c=case: without_kernels(t, c)
    yield "random bits", random_bits
    yield "decoder and AdamW, float64", lambda t: decoder(t, np.float64)
    yield "decoder and AdamW, float32", lambda t: decoder(t, np.float32)
    yield "ring all-reduce", all_reduce
    yield "training steps", training
    yield "staging", staging
    yield from kernel_checks()
    yield "a message over MPI", mpi
