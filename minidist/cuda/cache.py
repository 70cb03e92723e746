"""Compiled kernels, kept on disk: each text is compiled once, also when many ranks ask at once.

    process 0   lock KEY.lock   build KEY.so.123.tmp   rename it KEY.so   unlock
    process 1   lock KEY.lock   ......... waits ........................  it is there: load

The key is a hash of everything that the result depends on, so nothing is ever out of date and
nothing needs to be deleted. The name appears in one step, so a crash leaves no half of a file.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from minidist.cache import cache_folder
from minidist.errors import ConfigError, KernelError


def key_of(*parts: str) -> str:
    """Return a hash of texts; two different lists of texts never have the same one."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(b"%d:" % len(data) + data)
    return whole.hexdigest()[:32]


def kept(key: str, make: Callable[[Path], None]) -> Path:
    """Return the file of this key; if it is not there, have ``make`` write it. Safe among ranks."""
    folder = kernel_cache()
    path = folder / f"{key}.so"
    if path.exists():
        return path
    try:
        with (folder / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():  # another process may have been here first
                _make(path, make)
    except OSError as error:
        raise _refuse(folder, error) from error
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        make(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def kernel_cache() -> Path:
    """Return the folder of compiled kernels, and make it if it is not there."""
    try:
        folder = cache_folder().absolute() / "kernels"  # compilers run elsewhere
    except ConfigError as error:
        raise KernelError(f"no folder for compiled kernels: {error}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refuse(folder, error) from error
    return folder


def _refuse(folder: Path, error: OSError) -> KernelError:
    return KernelError(
        f"cannot keep compiled kernels in {folder}: {error.strerror}; "
        "set MINIDIST_CACHE to a folder that can be written"
    )
