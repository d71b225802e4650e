"""``--shape NAME=SIZE,...`` and ``--fix NAME=VALUE`` of ONNX models: sizes and values of inputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maxtool.artifact.input_types import LARGEST, MOST_DIMS
from maxtool.errors import MaxtoolError, UsageError
from maxtool.weights import open_checkpoint

Value = TypeVar("Value")
Sizes = tuple[int | str, ...]

SHAPE_EXAMPLE = "a shape is NAME=SIZE,..., such as input=batch,128"
FIX_EXAMPLE = "a value is NAME=JSON or NAME=FILE.npy, such as axes=[0,1]"


def parse_shapes(texts: Sequence[str]) -> dict[str, Sizes]:
    """Read all options ``--shape``; a size is a number from 1 on, or a name for any size."""
    return _parsed("--shape", texts, _shape, SHAPE_EXAMPLE)


def parse_fixed(texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read all options ``--fix``: a value in JSON, or the file of an array."""
    return _parsed("--fix", texts, _array, FIX_EXAMPLE)


def _parsed(
    option: str, texts: Sequence[str], parse: Callable[[str], Value], hint: str
) -> dict[str, Value]:
    values: dict[str, Value] = {}
    problems = []
    for text in texts:
        name, equals, value = text.rpartition("=") if option == "--shape" else text.partition("=")
        try:
            if not name or not equals:
                raise ValueError("it has no NAME=")
            if name in values:
                raise ValueError(f"{name} is there twice")
            values[name] = parse(value.strip())
        except (ValueError, MaxtoolError) as error:
            problems.append(f"{option} {text!r:.80}: {error}")
    if problems:
        raise UsageError(f"{option} cannot be read", problems=problems, hint=hint)
    return values


def _shape(text: str) -> Sizes:
    """The sizes; none of them for a scalar."""
    parts = [part.strip() for part in text.strip("[]").split(",")] if text.strip("[]") else []
    if len(parts) > MOST_DIMS:
        raise ValueError(f"more than {MOST_DIMS} dimensions")
    return tuple(_size(part) for part in parts)


def _size(text: str) -> int | str:
    if text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= LARGEST:
        return int(text)
    if text.isidentifier():
        return text
    raise ValueError(f"a size is a number from 1 to {LARGEST} or a name, not {text!r:.40}")


def _array(text: str) -> NDArray[Any]:
    if text.endswith(".npy"):
        return _from_file(Path(text))
    try:
        array = np.array(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError("a value is a number, true or false, or lists of these of one shape")
    return array


def _from_file(file: Path) -> NDArray[Any]:
    checkpoint = open_checkpoint(file)
    (name,) = checkpoint.tensors
    return checkpoint.read(name).data
