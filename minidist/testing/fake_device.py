"""A device that is not there: arrays that refuse whatever a real device would refuse.

Code for a GPU goes wrong where NumPy quietly helps: `np.exp` on a device array, a host array mixed
in, an `if x.max() > 0` that waits for the device. Without a GPU nobody would notice. These arrays
live in host memory but behave like a strict CuPy:

- only the functions of their own namespace work on them, found with `namespace(x)`;
- NumPy arrays neither mix with them nor become them, except through `asarray`;
- nothing becomes a Python number or a NumPy array, except through `.get()`;
- what CuPy does not have (`where=`, `initial=`, ...) is not there;
- `empty` is full of NaN, so that reading what was never written shows.

    xp = fake_device.xp
    x = xp.asarray(np.arange(3.0))
    xp.exp(x).get()                                                 works
    np.exp(x), x + np.ones(3), float(x.sum()), bool(x.sum() > 0)    are errors

Underneath the same NumPy functions run, so results equal the host's bit for bit.
"""

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from minidist.errors import DeviceError


def words(text: str) -> list[str]:
    """Split a list of names."""
    return text.split()


FUNCTIONS = words(
    "abs add arange argmax argsort ascontiguousarray broadcast_to clip concatenate copyto cos "
    "cumsum divide einsum exp full isfinite log log1p logical_and logical_or matmul max maximum "
    "may_share_memory mean min minimum multiply negative nonzero ones ones_like reshape sin sqrt "
    "square stack subtract sum swapaxes take_along_axis tanh transpose where zeros zeros_like"
)
"""Functions that NumPy and CuPy have in common: those in use, and their nearest kin."""

TYPES = words("bool_ int32 int64 uint8 uint32 uint64 float16 float32 float64")
METHODS = words("all any astype copy fill max mean min ravel reshape sum swapaxes transpose view")
ATTRIBUTES = words("shape dtype size ndim nbytes itemsize strides flags")

REFUSED = frozenset({"where", "initial", "order", "casting", "subok", "like", "signature"})
"""Keywords that CuPy lacks, in all or in most functions."""

UNARY = words("neg pos invert abs")
BINARY = words("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
COMPARE = words("lt le eq ne gt ge")


def refuse(what: str, remedy: str) -> NoReturn:
    """Raise the error of a real device."""
    raise DeviceError(f"device array: {what}; {remedy}")


def lower(x: Any) -> Any:
    """Return what NumPy is to compute with; a host array among the operands is an error."""
    if isinstance(x, FakeArray):
        return x._host
    if isinstance(x, np.ndarray):
        refuse(f"mixed with a host array of shape {x.shape}", "use xp.asarray(host) first")
    if isinstance(x, (tuple, list)):
        return type(x)(lower(part) for part in x)
    return x


def lift(x: Any) -> Any:
    """Return a result as a device array, or as it is if it holds no numbers of the device."""
    if isinstance(x, (np.ndarray, np.generic)):
        return FakeArray(np.asarray(x))
    if isinstance(x, (tuple, list)):
        return type(x)(lift(part) for part in x)
    return x


def call(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Call a NumPy function on device arrays."""
    if bad := REFUSED & set(keywords):
        refuse(f"{function.__name__} has no keyword {sorted(bad)}", "CuPy lacks it")
    out = keywords.get("out")
    result = function(*lower(args), **{k: lower(v) for k, v in keywords.items()})
    return out if out is not None else lift(result)


class FakeArray:
    """An array on the device that is not there."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    __iter__ = None

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    astype: Callable[..., "FakeArray"]

    def __init__(self, host: np.ndarray) -> None:
        self._host = host

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return xp

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        refuse(f"np.{function.__name__} was called", "call namespace(x).<function>")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse("converted to a NumPy array", "use to_host(x)")

    def __bool__(self) -> NoReturn:
        refuse("asked for its truth", "keep the decision on the device, or use to_host(x)")

    def __float__(self) -> NoReturn:
        refuse("converted to a Python number", "use to_host(x)")

    __int__ = __index__ = __complex__ = __float__

    def __len__(self) -> int:
        return len(self._host)

    def __getitem__(self, index: Any) -> "FakeArray":
        return FakeArray(np.asarray(self._host[lower(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._host[lower(index)] = lower(value)

    def __repr__(self) -> str:
        return f"FakeArray(shape={self.shape}, dtype={self.dtype})"

    def get(self) -> np.ndarray:
        """Copy to the host: the one way out."""
        return self._host.copy()

    def set(self, host: np.ndarray) -> None:
        """Copy from the host."""
        self._host[...] = host

    @property
    def T(self) -> "FakeArray":
        """The transposed view."""
        return FakeArray(self._host.T)


def _operator(name: str, *, reflected: bool = False, in_place: bool = False) -> Any:
    function = getattr(operator, ("i" if in_place else "") + name.rstrip("_"), None)
    function = function or getattr(operator, name + "_")

    def method(self: FakeArray, *other: Any) -> Any:
        mine, theirs = lower(self), lower(other)
        result = function(*theirs, mine) if reflected else function(mine, *theirs)
        return self if in_place else lift(result)

    return method


def _method(name: str) -> Any:
    def method(self: FakeArray, *args: Any, **keywords: Any) -> Any:
        return call(getattr(self._host, name), *args, **keywords)

    return method


for _name in UNARY + BINARY + COMPARE:
    setattr(FakeArray, f"__{_name}__", _operator(_name))
for _name in BINARY:
    setattr(FakeArray, f"__r{_name}__", _operator(_name, reflected=True))
    setattr(FakeArray, f"__i{_name}__", _operator(_name, in_place=True))
for _name in METHODS:
    setattr(FakeArray, _name, _method(_name))
for _name in ATTRIBUTES:
    setattr(FakeArray, _name, property(operator.attrgetter(f"_host.{_name}")))


class Namespace:
    """What `namespace(x)` returns for these arrays: the functions, the types, the constants."""

    inf, pi, newaxis = np.inf, np.pi, None
    ndarray = FakeArray

    def __init__(self) -> None:
        for name in TYPES:
            setattr(self, name, getattr(np, name))
        for name in FUNCTIONS:
            setattr(self, name, self._function(getattr(np, name)))

    @staticmethod
    def _function(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **keywords: call(function, *args, **keywords)

    @staticmethod
    def asarray(x: Any, dtype: Any = None) -> FakeArray:
        """Return ``x`` as a device array: the one way in. A host array is copied."""
        if isinstance(x, FakeArray):
            return x if dtype in (None, x.dtype) else x.astype(dtype)
        return FakeArray(np.array(x, dtype=dtype))

    array = asarray

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> FakeArray:
        """Return an array of garbage: NaN, or the largest integer."""
        x = np.empty(shape, dtype)
        x.fill(
            np.nan if x.dtype.kind in "fV" else 1 if x.dtype.kind == "b" else np.iinfo(dtype).max
        )
        return FakeArray(x)

    def empty_like(self, x: FakeArray, dtype: Any = None) -> FakeArray:
        """Return garbage of the shape of ``x``."""
        return self.empty(x._host.shape, dtype or x._host.dtype)


xp = Namespace()
"""The namespace, used like the module `cupy`."""
