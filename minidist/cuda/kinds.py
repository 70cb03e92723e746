"""The types that a kernel's parameters may have: scalars, and pointers to scalars and vectors.

    CUDA            code     NumPy
    float           f4       float32
    __half          e2       float16
    __nv_bfloat16   bf2      bfloat16 (of ml_dtypes), or uint16 where there is no such type
    float4          f4x4     float32, four at a time: the address must be a multiple of 16

The codes are what a compiled kernel tells about itself, too (md_signature_<n>).
"""

from dataclasses import dataclass

import numpy as np
from ml_dtypes import bfloat16

DTYPES: dict[str, np.dtype] = {
    "f4": np.dtype(np.float32),
    "f8": np.dtype(np.float64),
    "e2": np.dtype(np.float16),
    "bf2": np.dtype(bfloat16),
    "i1": np.dtype(np.int8),
    "i2": np.dtype(np.int16),
    "i4": np.dtype(np.int32),
    "i8": np.dtype(np.int64),
    "u1": np.dtype(np.uint8),
    "u2": np.dtype(np.uint16),
    "u4": np.dtype(np.uint32),
    "u8": np.dtype(np.uint64),
    "b1": np.dtype(np.bool_),
}

# Words in alphabetical order, since "unsigned long long int" may be written in any order.
SCALARS = {
    "float": "f4",
    "double": "f8",
    "__half": "e2",
    "half": "e2",
    "__nv_bfloat16": "bf2",
    "nv_bfloat16": "bf2",
    "char": "i1",
    "char signed": "i1",
    "short": "i2",
    "int short": "i2",
    "int": "i4",
    "signed": "i4",
    "int signed": "i4",
    "long": "i8",
    "int long": "i8",
    "long long": "i8",
    "int long long": "i8",
    "char unsigned": "u1",
    "short unsigned": "u2",
    "int short unsigned": "u2",
    "unsigned": "u4",
    "int unsigned": "u4",
    "long unsigned": "u8",
    "int long unsigned": "u8",
    "long long unsigned": "u8",
    "int long long unsigned": "u8",
    "size_t": "u8",
    "bool": "b1",
} | {f"{sign}int{8 * n}_t": f"{sign or 'i'}{n}" for sign in ("", "u") for n in (1, 2, 4, 8)}

VECTORS = {
    f"{name}{n}": f"{code}x{n}"
    for name, code in {"float": "f4", "double": "f8", "int": "i4", "uint": "u4"}.items()
    for n in (2, 4)
    if (name, n) != ("double", 4)  # four of them are 32 bytes, more than one load brings
} | {
    "half2": "e2x2",
    "__half2": "e2x2",
    "nv_bfloat162": "bf2x2",
    "__nv_bfloat162": "bf2x2",
}

ALLOWED = "float, double, __half, __nv_bfloat16, bool, integers, and pointers to these and float4"


@dataclass(frozen=True)
class Kind:
    """The type of a parameter: ``stars`` is 0 for a scalar, 1 for a pointer, 2 for a table of them.

    ``const`` says that the elements are not written; the table itself never is.
    """

    code: str
    stars: int = 0
    const: bool = False

    def __str__(self) -> str:
        lanes = f" x {self.lanes}" if self.lanes > 1 else ""
        element = DTYPES[self.code.partition("x")[0]]
        return f"{'const ' if self.const else ''}{element}{lanes}{'*' * self.stars}"

    @property
    def lanes(self) -> int:
        """Elements of the vector pointed to; 1 for a scalar."""
        return int(self.code.partition("x")[2] or 1)

    @property
    def dtype(self) -> np.dtype:
        """The NumPy type of an element; of a table of pointers, uint64."""
        return DTYPES["u8" if self.stars > 1 else self.code.partition("x")[0]]

    @property
    def alignment(self) -> int:
        """What the address of an array must be a multiple of."""
        return self.dtype.itemsize * (1 if self.stars > 1 else self.lanes)

    @property
    def word(self) -> str:
        """The type as the compiled kernel tells it, for example "*cf4"."""
        return "*" * self.stars + ("c" if self.const else "") + self.code


def kind_of(tokens: list[str]) -> Kind | None:
    """Return the type that some words of C++ mean, or None if a kernel here cannot have it."""
    stars = tokens.count("*")
    words = [word for word in tokens if word not in ("__restrict__", "volatile", "*")]
    # What stands before the first star belongs to the element, what follows to the pointer.
    element = tokens[: tokens.index("*")] if stars else tokens
    name = " ".join(sorted(word for word in words if word != "const"))
    code = SCALARS.get(name) or (VECTORS.get(name) if stars else None)
    if code is None or stars > 2:
        return None
    return Kind(code, stars, bool(stars) and "const" in element)
