"""One frozen dataclass is the flags, the TOML file and the record of a run.

    @dataclass(frozen=True)
    class TrainConfig:
        steps: int = option(1500, "optimiser steps")            --steps 200
        tied: bool = option(False, "one table for both ends")   --tied, --no-tied
        data: str = option("", "a file or a folder")            --data notes.txt

    defaults  <  --config file.toml  <  flags

Every field becomes a flag, so a field is added with care: large trainers ended with hundreds.
Types are bool, int, float and str, and one of these `| None` for "not given".
"""

import argparse
import dataclasses
import json
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from minidist.errors import ConfigError

T = TypeVar("T")
SCALARS = (bool, int, float, str)


def option(default: Any, help: str, choices: tuple[Any, ...] | None = None) -> Any:
    """Return a dataclass field with a default, a line of help and perhaps the allowed values."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices})


def kinds(cls: type) -> dict[str, tuple[type, bool]]:
    """Return for each field its scalar type, and whether it may be None."""
    result = {}
    for name, hint in typing.get_type_hints(cls).items():
        parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        scalars = [part for part in parts if part is not types.NoneType]
        if len(scalars) != 1 or scalars[0] not in SCALARS:
            raise ConfigError(f"{cls.__name__}.{name}: {hint} is not a type of an option")
        result[name] = (scalars[0], len(parts) > 1)
    return result


def add_flags(parser: argparse.ArgumentParser, *classes: type) -> None:
    """Add `--config` and a flag per field of each class. A flag that is not given stays absent."""
    parser.add_argument("--config", metavar="FILE.toml", help="read options from a file")
    types_of = {name: kind for cls in classes for name, (kind, _) in kinds(cls).items()}
    for field in (field for cls in classes for field in dataclasses.fields(cls)):
        kind = types_of[field.name]
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["help"]
        if kind is not bool and field.default not in (None, ""):
            text += f" ({field.default})"
        text = text.replace("%", "%%")  # argparse formats help with %
        common: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        else:
            choices = field.metadata["choices"]
            metavar = None if choices else kind.__name__.upper()
            parser.add_argument(flag, type=kind, choices=choices, metavar=metavar, **common)


def resolve(
    cls: type[T],
    args: argparse.Namespace,
    file: str | Path | None = None,
    others: tuple[type, ...] = (),
) -> T:
    """Return a `cls` from its defaults, then the TOML file, then the flags that were given.

    `file` is `--config` unless it is named here; it may also hold options of `others`, which are
    left to them. ConfigError names the field that is wrong.
    """
    file = file or getattr(args, "config", None)
    given = read_toml(cls, Path(file), others) if file else {}
    flags = {name: value for name, value in vars(args).items() if name in kinds(cls)}
    return cls(**{**given, **flags})


def read_toml(cls: type, path: Path, others: tuple[type, ...] = ()) -> dict[str, Any]:
    """Return the options of `cls` in a TOML file, each checked; no other but those of `others`."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    elsewhere = {name for other in others for name in kinds(other)} - set(kinds(cls))
    return {
        name: check(cls, name, value, str(path))
        for name, value in table.items()
        if name not in elsewhere
    }


def check(cls: type, name: str, value: Any, where: str) -> Any:
    """Return `value` for the field `name` of `cls` (an int for a float is converted)."""
    if name not in kinds(cls):
        raise ConfigError(f"{where}: no option '{name}'; there are {', '.join(kinds(cls))}")
    kind, _ = kinds(cls)[name]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{where}: {name} = {value!r} must be of type {kind.__name__}")
    field = next(f for f in dataclasses.fields(cls) if f.name == name)
    choices = field.metadata["choices"]
    if choices and value not in choices:
        raise ConfigError(f"{where}: {name} = {value!r} must be one of {', '.join(choices)}")
    return value


def dump_toml(config: Any) -> str:
    """Return a config as TOML which `resolve` reads back as the same. None is left out."""
    lines = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value is not None:
            lines.append(f"{field.name} = {toml(value)}\n")
    return "".join(lines)


def toml(value: Any) -> str:
    """Return one scalar as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # A TOML basic string is a JSON string, but for the character DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)  # "inf", "nan" and "1e-05" are the same in both languages
