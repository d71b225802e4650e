"""``--input 'x=float32[batch,16]'`` and ``--entry NAME=METHOD``: entries of a module, and types."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.graph import Dim, TensorType
from maxtool.weights.names import did_you_mean

FORWARD = "forward"
LARGEST = 1 << 48
"""The largest size of a dimension, and the most bytes of a tensor."""
MOST_DIMS = 32
"""Dimensions that a tensor has at most."""
ENTRY = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
INPUT = re.compile(
    r"\s*(?:(?P<entry>[^=.]*)\.)?(?P<name>[^=.]*)=\s*(?P<dtype>[^\[\]]*)\[(?P<dims>[^\[\]]*)\]\s*"
)
EXAMPLE = "an input is NAME=TYPE[SIZE,...], such as 'x=float32[batch,16]'"


@dataclass(frozen=True, slots=True)
class EntrySpec:
    """An entry of a module: its name, the method that computes it, and types by parameter."""

    name: str
    method: str
    inputs: Mapping[str, TensorType]


def parse_entries(entries: Sequence[str], inputs: Sequence[str]) -> list[EntrySpec]:
    """Read all options ``--entry`` and ``--input``; without an entry there is ``forward``.

    Args:
        entries: ``NAME=METHOD``, or ``METHOD`` where both are the same.
        inputs: ``NAME=TYPE[SIZE,...]``, an input of every entry, or ``ENTRY.NAME=...``, of that
            one. A size is a number, or a name for any size; a name means the same size wherever it
            stands.
    """
    problems: list[str] = []
    methods: dict[str, str] = {}
    for text in entries or [FORWARD]:
        name, _, method = text.partition("=")
        if not ENTRY.fullmatch(name) or not (method or name).isidentifier():
            problems.append(f"--entry {text!r:.80} is not NAME=METHOD")
        elif name in methods:
            problems.append(f"--entry {name} is there twice")
        methods[name] = method or name
    read = [_input(text, methods, problems) for text in inputs]
    known = [item for item in read if item is not None]
    problems += _twice(known)
    if problems:
        raise UsageError("the entries cannot be read", problems=problems, hint=EXAMPLE)
    return [
        EntrySpec(name, method, {key: t for entry, key, t in known if entry in (None, name)})
        for name, method in methods.items()
    ]


def _input(
    text: str, entries: Mapping[str, str], problems: list[str]
) -> tuple[str | None, str, TensorType] | None:
    """The entry that an input is of, or None for all, its name and type; None if it is wrong."""
    match = INPUT.fullmatch(text)
    if match is None or not match["name"].isidentifier():
        problems.append(f"--input {text!r:.80} is not NAME=TYPE[SIZE,...]")
        return None
    entry, name = match["entry"], match["name"]
    if entry is not None and entry not in entries:
        problems.append(f"--input {text!r:.80}: there is no --entry {entry!r:.40}")
        return None
    try:
        return entry, name, _type(match["dtype"].strip(), match["dims"])
    except ValueError as error:
        problems.append(f"--input {text!r:.80}: {error}")
        return None


def _type(dtype: str, dims: str) -> TensorType:
    result = TensorType(_dtype(dtype), _dims(dims))
    known = (dim.value for dim in result.shape if isinstance(dim.value, int))
    if (nbytes := math.prod(known) * result.dtype.size_in_bytes) > LARGEST:
        raise ValueError(f"the tensor takes at least {nbytes} bytes, more than any memory has")
    return result


def _dtype(text: str) -> DType:
    try:
        return DType(text)
    except ValueError:
        names = [dtype.value for dtype in DType]
        near = did_you_mean(text[:80], names) or f"there are {', '.join(names)}"
        raise ValueError(f"no element type {text!r:.40}; {near}") from None


def _dims(text: str) -> list[Dim]:
    """The sizes between the brackets; none of them for a scalar."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > MOST_DIMS:
        raise ValueError(f"more than {MOST_DIMS} dimensions")
    return [_dim(part) for part in parts]


def _dim(text: str) -> Dim:
    if text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= LARGEST:
        return Dim(int(text))
    if text.isidentifier():
        return Dim(text)
    raise ValueError(f"a size is a number from 1 to {LARGEST} or a name, not {text!r:.40}")


def _twice(inputs: Iterable[tuple[str | None, str, TensorType]]) -> list[str]:
    """A line for each input that has two types in one entry."""
    names = Counter((entry, name) for entry, name, _ in inputs)
    everywhere = {name for entry, name in names if entry is None}
    return [
        f"--input {f'{entry}.' if entry else ''}{name} is there twice"
        for (entry, name), count in names.items()
        if count > 1 or (entry is not None and name in everywhere)
    ]
