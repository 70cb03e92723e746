"""NVRTC, NVIDIA's run-time compiler, without CuPy and without a GPU.

    kernels/x.cu ──> nvrtc.build("x.cu", "sm_90") ──> .code (machine code, or PTX) and .log

On a node with a GPU, CuPy calls the same library. Here it answers a smaller question on any x86-64
or aarch64 Linux, in a tenth of a second: does the GPU's own compiler take this file, for this
generation of GPUs?  sm_75 is Turing (T4), sm_80 Ampere (A100), sm_90 Hopper (H100), sm_100
Blackwell (B200). That it compiles does not say that it is right.

NVRTC is one library of C functions (pip install 'minidist[nvrtc]'), called through ctypes as in C:

    create a program from text ─> compile it with options ─> ask for the log ─> ask for the code
"""

import functools
import importlib.metadata
import os
from collections.abc import Mapping
from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from dataclasses import dataclass
from pathlib import Path

from minidist.cache import cache_folder
from minidist.cuda import source as sources
from minidist.errors import CompileError, NoCompilerError

DISTRIBUTION = "nvidia-cuda-nvrtc"
LIBRARY = "libnvrtc.so."  # followed by the major version
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")


@dataclass(frozen=True)
class Built:
    """What the compiler gave: machine code (cubin) or PTX, and what it said (warnings)."""

    code: bytes
    log: str


def build(
    file: str | os.PathLike[str] | None = None,
    architecture: str = "sm_90",
    *,
    code: str | None = None,
    ptx: bool = False,
    defines: Mapping[str, object] | None = None,
) -> Built:
    """Compile a file of kernels/, any other file, or the text `code`, for one generation of GPUs.

    The machine code, or with `ptx` NVIDIA's assembly language, which people can read. Raises
    CompileError with the compiler's words about the file, NoCompilerError if there is no NVRTC.
    """
    source = sources.read(file, code)
    options = [
        f"--gpu-architecture={architecture.replace('sm_', 'compute_') if ptx else architecture}",
        "--std=c++17",
        f"--use-bundled-headers={headers_folder()}",
        *(f"--include-path={folder}" for folder in source.folders),
        *(f"--define-macro={name}={value}" for name, value in (defines or {}).items()),
    ]
    name = sources.shown(source.path) if source.path else source.name
    # NVRTC would name a file after its program; with this line it names the file that people edit.
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    text = f'#line 1 "{quoted}"\n{source.text}'
    return _build(text, name, architecture, options, "PTX" if ptx else "CUBIN")


def _build(text: str, name: str, architecture: str, options: list[str], kind: str) -> Built:
    nvrtc, program = library(), c_void_p()
    _check(nvrtc.nvrtcCreateProgram(byref(program), text.encode(), name.encode(), 0, None, None))
    try:
        words = (c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), words)
        log = _ask(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status:
            why = log or _words(status)
            raise CompileError(f"NVRTC does not compile {name} for {architecture}:\n{why}")
        return Built(_ask(program, kind), log)
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


def _ask(program: c_void_p, what: str) -> bytes:
    """Fetch the log or the code of a program: first its size, then the bytes."""
    size = c_size_t()
    _check(getattr(library(), f"nvrtcGet{what}Size")(program, byref(size)))
    answer = create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, answer))
    return answer.raw


def _words(status: int) -> str:
    return (library().nvrtcGetErrorString(status) or b"").decode()


def _check(status: int) -> None:
    if status:
        raise CompileError(f"NVRTC refuses a call: {_words(status)}")


@functools.cache
def library() -> CDLL:
    """Load NVRTC, and tell ctypes which of its arguments are pointers."""
    path = find_library()
    try:
        nvrtc = CDLL(str(path))
    except OSError as error:
        remedy = f"pip install --force-reinstall {DISTRIBUTION}"
        raise NoCompilerError(f"NVRTC does not load: {error}. Install it anew: {remedy}") from error
    nvrtc.nvrtcGetErrorString.restype = c_char_p
    for what in ("ProgramLog", "CUBIN", "PTX"):
        getattr(nvrtc, f"nvrtcGet{what}Size").argtypes = [c_void_p, POINTER(c_size_t)]
        getattr(nvrtc, f"nvrtcGet{what}").argtypes = [c_void_p, c_char_p]
    nvrtc.nvrtcCompileProgram.argtypes = [c_void_p, c_int, POINTER(c_char_p)]
    return nvrtc


def find_library() -> Path:
    """Find libnvrtc.so among the files that pip has installed, wherever it has put them."""
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.startswith(LIBRARY) and Path(str(file.locate())).is_file():
            return Path(str(file.locate()))
    raise NoCompilerError(
        f"NVRTC is not installed, so no kernel can be compiled for a GPU that is not here: "
        f"pip install '{DISTRIBUTION}' (or minidist[nvrtc])"
    )


@functools.cache
def headers_folder() -> Path:
    """Return where NVRTC unpacks CUDA's headers (cuda_fp16.h ...): once, 26 MB, with a lock."""
    major, minor = c_int(), c_int()
    _check(library().nvrtcVersion(byref(major), byref(minor)))
    folder = cache_folder() / f"cuda-headers-{major.value}.{minor.value}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder
