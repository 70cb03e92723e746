"""What a GPU launches and what it refuses; the emulator refuses the same.

    threads in a block      1 to 1,024, at most 64 of them along z
    blocks in a grid        1 to 2,147,483,647 along x, 65,535 along y and z
    shared memory           48 KB static, 227 KB in all (an H100; an A100 has 163, a T4 64)

A grid of no blocks is an error on a GPU as well: whoever has nothing to do must not launch.
"""

import operator
from collections.abc import Iterable
from typing import TypeAlias

from minidist.errors import ArgumentError

THREADS = 1024
BLOCK = (1024, 1024, 64)
GRID = (2**31 - 1, 65535, 65535)
STATIC_SHARED = 48 * 1024  # bytes; a launch may have more only of the dynamic kind
SHARED = 227 * 1024
RESIDENT = 1024  # blocks of a cooperative launch, which must all run at the same time

Size: TypeAlias = int | tuple[int, ...]
Three: TypeAlias = tuple[int, int, int]


def three(kernel: str, what: str, size: Size, limits: Three) -> Three:
    """Return a grid or block as three numbers: 5, (5,) and (5, 1) are all (5, 1, 1)."""
    given = tuple(size) if isinstance(size, Iterable) and not isinstance(size, str) else (size,)
    if not 1 <= len(given) <= 3:
        raise ArgumentError(f"{kernel}: {what} {size!r} has {len(given)} numbers; give 1 to 3")
    numbers = [_whole(kernel, what, size, each) for each in given] + [1, 1]
    for axis, number, limit in zip("xyz", numbers, limits, strict=False):
        if number < 1:
            raise ArgumentError(
                f"{kernel}: {what} {size!r} has {number} along {axis}; a GPU launches at least 1, "
                "so do not launch when there is nothing to do"
            )
        if number > limit:
            raise ArgumentError(
                f"{kernel}: {what} {size!r} has {number:,} along {axis}; a GPU takes {limit:,}"
            )
    return numbers[0], numbers[1], numbers[2]


def _whole(kernel: str, what: str, size: object, number: object) -> int:
    try:
        if isinstance(number, bool):
            raise TypeError
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(
            f"{kernel}: {what} {size!r} holds {number!r}, no whole number; "
            "divide with //, rounded up: (n + block - 1) // block"
        ) from None


def grid_of(kernel: str, size: Size, cooperative: bool = False) -> Three:
    """Return the blocks of a launch along x, y and z."""
    grid = three(kernel, "grid", size, GRID)
    blocks = grid[0] * grid[1] * grid[2]
    if cooperative and blocks > RESIDENT:
        raise ArgumentError(
            f"{kernel}: {blocks:,} blocks of a cooperative launch cannot all run at once; "
            f"launch at most {RESIDENT:,} and let each do more"
        )
    return grid


def block_of(kernel: str, size: Size) -> Three:
    """Return the threads of a block along x, y and z."""
    block = three(kernel, "block", size, BLOCK)
    threads = block[0] * block[1] * block[2]
    if threads > THREADS:
        raise ArgumentError(
            f"{kernel}: block {size!r} has {threads:,} threads; a GPU takes {THREADS:,}"
        )
    return block


def shared_of(kernel: str, dynamic: int, static: int = 0) -> int:
    """Return the bytes of dynamic shared memory; ``static`` is what the kernel has besides."""
    size = _whole(kernel, "shared_mem", dynamic, dynamic)
    if size < 0:
        raise ArgumentError(f"{kernel}: shared_mem={size} is negative; it is a number of bytes")
    if size + static > SHARED:
        besides = f" and {static:,} static" if static else ""
        raise ArgumentError(
            f"{kernel}: {size:,} bytes of dynamic{besides} shared memory; "
            f"a block has at most {SHARED:,} (227 KB)"
        )
    return size
