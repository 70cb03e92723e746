"""Variables of a kernel file, `__constant__ float table[16]`, as NumPy arrays without a copy."""

import ctypes
from math import prod
from typing import Any

import numpy as np

from minidist.errors import ArgumentError, KernelError


class _Info(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class _Symbol(ctypes.Structure):
    """Elf64_Sym of <elf.h>."""

    _fields_ = [
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint8),
        ("other", ctypes.c_uint8),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    ]


def variable(library: ctypes.CDLL, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
    """Return a variable of a loaded library as an array; refuse one that is larger than it."""
    try:
        address = ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:
        raise KernelError(
            f"there is no variable {name!r}; it is declared __device__ or __constant__, outside of "
            "functions and namespaces, and not static"
        ) from None
    size = dtype.itemsize * prod(shape)
    there = size_of(address)
    if size > there:
        raise ArgumentError(
            f"variable {name!r} has {there} bytes, and {dtype}{list(shape)} would have {size}"
        )
    memory = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, memoryview(memory))


def size_of(address: int) -> int:
    """Return the size of the variable at an address, as the dynamic linker knows it."""
    info, symbol = _Info(), ctypes.POINTER(_Symbol)()
    find = ctypes.CDLL(None).dladdr1
    find.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    with_symbol = 1  # RTLD_DL_SYMENT
    if not find(address, ctypes.byref(info), ctypes.byref(symbol), with_symbol) or not symbol:
        raise KernelError(f"the dynamic linker knows no variable at {address:#x}")
    return int(symbol.contents.size)
