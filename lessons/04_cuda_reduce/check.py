"""The laws of lesson 04, in the order of its blanks; a test is about the blank in its name.

Kernels run in the emulator, on NumPy arrays, and are watched (minidist/cuda/watching.py): each
access to memory that threads share is noted. So a race is found whatever the result, and bytes are
counted, not timed. Launches rise in size, and what fails first is the smallest. Where a GPU is
there, the kernels also run on it and must give the same (this part was not run on one).
"""

from importlib import import_module

import numpy as np

from minidist import cuda
from minidist.arrays import to_host
from minidist.comm.staging import Staged
from minidist.errors import KernelFault, KernelTimeout
from minidist.learn import laws
from minidist.learn.laws import NOTHING, LawBroken, World, coded, compare, describe
from minidist.testing.late_device import LateDevice

SIZES = (1, 31, 33, 0, 1000)
IN_BOUNDS = (
    "a thread whose element, or whose partner, is not there touches nothing. A GPU may well let it "
    "pass: then it has hit what lies beside."
)
ENDS = "all threads of a block come to the same __syncthreads(), or those that came wait for ever."
BARRIER = (
    "if a thread writes what another one reads or writes, a __syncthreads() stands between them. "
    "Without it the order is chance: this time the result may be right."
)
OWNED = "threads of different blocks cannot wait for each other: each element has one writer."
PATIENCE = 5.0  # seconds for a launch that takes milliseconds


def launched(kernel, world, grid, block, args, shared=0):
    """Launch a kernel on NumPy arrays, and hand out what has been seen; a fault breaks a law."""
    try:
        with cuda.settings(timeout=PATIENCE), cuda.watch() as seen:
            kernel(grid, block, args, shared)
    except (KernelFault, KernelTimeout) as error:
        first, _, rest = str(error).partition("\n")
        law = IN_BOUNDS if "bounds" in first or "const" in first else ENDS
        raise LawBroken(law, f"{world}\n{first}", rest) from None
    for race in seen.races():
        law = BARRIER if race.first.block == race.second.block else OWNED
        first, *accesses = str(race).splitlines()
        raise LawBroken(law, f"{world}: {first}", "\n".join(a.strip() for a in accesses))
    return seen


def same_elements(law, world, want, got, seen):
    """Compare an array, and say of the first wrong element who has written it."""
    wrong = np.flatnonzero(~(want == got))
    if not wrong.size:
        return
    at = int(wrong[0])
    rows = ["element  should be    is           written by"]
    for i in range(max(at - 1, 0), min(at + 3, len(want))):
        who = seen.writer(0, i)
        by = "nobody" if who is None else f"thread {who[1]} of block {who[0]}"
        arrow = "->" if i == at else "  "
        rows.append(f"{arrow} {i:4}  {want[i]:<11g}  {got[i]:<11g}  {by}")
    is_now = "is not written" if seen.writer(0, at) is None else f"is {got[at]:g}"
    headline = f"{world}: out[{at}] should be {want[at]:g}, {is_now}"
    raise LawBroken(law, headline, "\n".join(rows))


def on_gpu(kernel, grid, block, args, shared, want):
    """The same launch on a GPU, if there is one."""
    if not cuda.gpu_available()[0]:
        return
    xp = import_module("cupy")
    moved = [xp.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
    kernel(grid, block, moved, shared)
    got = to_host(moved[0])
    if not np.array_equal(want, got):
        raise LawBroken("a GPU gives what the emulator gives.", f"want {want}, on the GPU {got}")


def named(n, grid, block):
    blocks, threads = laws.counted(grid, "block"), laws.counted(block, "thread")
    return f"n = {n}, {blocks} of {threads}"


def moves(world, seen, want, say):
    """Bytes between memory and the processor: exactly what the task needs."""
    if seen.moved() != want:
        law = f"{say}. Memory is the limit, so a byte more is time lost, and arithmetic is not."
        table = f"bytes read {seen.reads()}, bytes written {seen.writes()}"
        headline = f"{world}: should move {want} bytes, moves {seen.moved()}"
        raise LawBroken(law, headline, table)


def operands(n):
    """Two arrays with exact sums, in which no element is that of another place."""
    return np.arange(1, n + 1, dtype=np.float32), np.arange(n, dtype=np.float32) * 2048


def unwritten(n):
    return np.full(n, np.nan, np.float32)


def test_add_f32(exercise):
    """04.1  add equals NumPy for odd sizes, touches nothing else, and moves 12 bytes an element."""
    for threads in (32, 33, 256):
        for n in SIZES:
            (a, b), out = operands(n), unwritten(n)
            grid = max(1, -(-n // threads))
            world = named(n, grid, threads)
            seen = launched(exercise.add_f32, world, grid, threads, (out, a, b, n))
            same_elements("out[i] = a[i] + b[i] for every i < n.", world, a + b, out, seen)
            moves(world, seen, 12 * n, "two floats are read and one is written for each element")
            on_gpu(exercise.add_f32, grid, threads, (out, a, b, n), 0, a + b)


BLOCKS = [(1, 1), (1, 2), (1, 3), (1, 6), (2, 31), (2, 32), (1, 33), (3, 200), (4, 256)]


def summed(exercise, n, grid, threads):
    """Launch the block reduction; return the name of the launch, its arguments, what was seen."""
    x, out = operands(n)[0], unwritten(grid)
    world = named(n, grid, threads)
    args, shared = (out, x, n), 4 * threads
    seen = launched(exercise.sum_sequential, world, grid, threads, args, shared)
    return world, args, seen


def test_sum_sequential(exercise):
    """04.2  each block has the sum of its elements, without a race, for any number of threads."""
    law = "out[block] is the sum of the elements of its threads; those without an element add 0."
    for grid, threads in BLOCKS:
        for n in (grid * threads, grid * threads - 1, *SIZES):
            if n <= grid * threads:
                world, args, seen = summed(exercise, n, grid, threads)
                padded = np.pad(args[1], (0, grid * threads - n))
                want = padded.reshape(grid, threads).sum(1)
                same_elements(law, world, want, args[0], seen)
                on_gpu(exercise.sum_sequential, grid, threads, args, 4 * threads, want)


def test_sum_sequential_is_a_tree(exercise):
    """04.2  ... in log2(threads) rounds, and each element is read once."""
    for threads in (1, 2, 33, 256):
        n = 2 * threads
        world, _, seen = summed(exercise, n, 2, threads)
        say = "one float is read for each element and one is written for each block"
        moves(world, seen, 4 * n + 8, say)
        rounds = (threads - 1).bit_length()
        busiest = seen.launches[0].busiest()
        if busiest > 4 * rounds + 4:
            law = (
                "in each round half of the threads take from the other half: log2(threads) rounds, "
                "in each of which a thread reads two floats and writes one."
            )
            table = f"{rounds} rounds are at most {4 * rounds + 4} accesses one after the other"
            headline = f"{world}: the busiest thread accesses shared memory {busiest} times"
            raise LawBroken(law, headline, table)


def test_add_scaled_f32_stride(exercise):
    """04.3  the fused kernel equals NumPy on any grid, and moves 12 bytes an element, not 20."""
    alpha = 0.5
    for grid, threads in ((1, 1), (2, 2), (1, 32), (3, 33), (5, 256)):
        for n in SIZES:
            (a, b), out = operands(n), unwritten(n)
            args, want = (out, a, b, alpha, n), a + np.float32(alpha) * b
            world = named(n, grid, threads)
            seen = launched(exercise.add_scaled_f32_stride, world, grid, threads, args)
            law = "out[i] = a[i] + alpha * b[i] for every i < n, whatever the grid; alpha = 0.5."
            same_elements(law, world, want, out, seen)
            moves(world, seen, 12 * n, "the product stays in a register: 12 bytes for each element")
            on_gpu(exercise.add_scaled_f32_stride, grid, threads, args, 0, want)


SENT = (
    "MPI reads the buffer at once, and the kernel that fills x may not have begun: what is sent "
    "must have been copied after that kernel. nan is a buffer that nobody has filled."
)
READ = "when `arrived` returns, x holds the message, and nobody needs to wait for anything more."


def test_outgoing(exercise):
    """04.4  what is sent is what the kernel has written, however late it runs."""

    def program(comm, n):
        device, x = LateDevice(), np.full(n, NOTHING, float)
        way = Staged(device)
        device.launch(lambda: np.copyto(x, coded(comm.rank, n)))
        buffer = exercise.outgoing(way, x)
        if not isinstance(buffer, np.ndarray) or buffer.nbytes != x.nbytes:
            law = "outgoing returns the buffer that way.incoming(x) has lent."
            raise LawBroken(law, f"n = {n}: outgoing returns {type(buffer).__name__}")
        if n and np.may_share_memory(buffer, x):
            law = "MPI cannot read the memory of a device: it gets a host buffer, way.incoming(x)."
            raise LawBroken(law, f"n = {n}: outgoing returns the device array itself")
        sent = np.array(buffer).view(float)  # now, and not later: that is when MPI reads
        comm.barrier()
        return sent

    for ranks in (1, 2, 3):
        for n in (0, 1, 3):
            world = World(ranks, n)
            want = [coded(r, n) for r in range(ranks)]
            compare(SENT, world.name, want, world.run(program), describe, "send")


def test_arrived(exercise):
    """04.5  what has arrived is on the device when it is said to be."""

    def program(comm, n):
        device, x = LateDevice(), np.full(n, NOTHING, float)
        way = Staged(device)
        buffer = way.incoming(x)
        buffer[...] = coded(comm.rank, n).view(np.uint8)  # MPI
        exercise.arrived(way, buffer, x)
        read = x.copy()
        buffer[...] = 0xFF  # the next message
        device.synchronise()
        comm.barrier()
        return read, x

    for ranks in (1, 2, 3):
        for n in (0, 1, 3):
            world = World(ranks, n)
            read, later = zip(*world.run(program), strict=True)
            want = [coded(r, n) for r in range(ranks)]
            compare(READ, world.name, want, read, describe)
            law = "the buffer may then be used again: what it holds later is another message."
            compare(law, f"{world.name}, a little later", want, later, describe)
