"""Edits of what an output says of its model: GGUF's keys, safetensors' metadata, config.json.

The keys of GGUF have types: a key that is there keeps its own, a new one says it, as in
``KEY=uint32:7`` or ``KEY=string[]:["a", "b"]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from maxtool.conversion.description import Description
from maxtool.conversion.edit_request import MetadataEdits
from maxtool.conversion.hf_files import CONFIG
from maxtool.conversion.request import Target
from maxtool.errors import UsageError
from maxtool.recipe.quantized_types import ARCHITECTURE
from maxtool.weights.formats.gguf import ALIGNMENT_KEY, MAX_ALIGNMENT
from maxtool.weights.formats.gguf_values import NUMBERS
from maxtool.weights.names import did_you_mean, is_utf8

Content = dict[str, Any]

ALIGNMENTS = [1 << power for power in range(3, MAX_ALIGNMENT.bit_length())]
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
# GGUF's types as gguf-py names them, and as llama.cpp's tools abbreviate them.
SCALARS: Mapping[str, np.dtype[Any]] = {
    name: dtype
    for dtype in NUMBERS.values()
    if dtype.kind != "b"
    for name in (dtype.name, f"{dtype.kind}{dtype.itemsize * 8}")
}
TYPED = re.compile(r"(?P<type>[a-z]+\d*)(?P<array>\[\])?:(?P<value>.*)", re.DOTALL)
MAX_DEPTH = 64  # of JSON
NAMES = (*dict.fromkeys(dtype.name for dtype in SCALARS.values()), "bool", "string")


def apply(description: Description, edits: MetadataEdits, target: Target) -> Description:
    """Return the description with keys set and removed."""
    if not edits.settings and not edits.removed:
        return description
    return EDITORS[target](description, edits)


def _gguf(description: Description, edits: MetadataEdits) -> Description:
    for key in (*edits.removed, *(key for key, _ in edits.settings)):
        if key.startswith("split."):
            raise UsageError(f"{key}: keys of splits are written with the splits")
    if ARCHITECTURE in edits.removed:
        what = f"--remove {ARCHITECTURE}: no reader opens a GGUF file without it"
        raise UsageError(what, hint=f"--set {ARCHITECTURE}=NAME gives it another value")
    content = _removed(description.metadata, edits)
    for key, text in edits.settings:
        content[key] = gguf_value(key, text, description.metadata.get(key))
    alignment = content.get(ALIGNMENT_KEY, np.uint32(32))
    if not _is_alignment(alignment):
        raise UsageError(f"{ALIGNMENT_KEY} is a uint32, a power of two from 8 to {MAX_ALIGNMENT}")
    return replace(description, metadata=content)


def _is_alignment(value: object) -> bool:
    return isinstance(value, np.uint32) and int(value) in ALIGNMENTS


def gguf_value(key: str, text: str, before: object) -> Any:  # noqa: ANN401 - of any GGUF type
    """A value of GGUF: of the type that the text states, or that the key has."""
    match = TYPED.fullmatch(text)
    name = {"str": "string"}.get(match["type"], match["type"]) if match else ""
    if match and (name in SCALARS or name in NAMES):
        return _value(key, name, match["value"], array=bool(match["array"]))
    if before is None:
        hint = f"say it: --set {key}=TYPE:{text:.40}, with one of {', '.join(NAMES)}, or TYPE[]"
        raise UsageError(f"--set {key}: a new key has no type yet", hint=hint)
    array = isinstance(before, np.ndarray | list)
    return _value(key, _type_of(before), text, array=array)


def _type_of(value: object) -> str:
    if isinstance(value, str | list):
        return "string"
    name: str = np.asarray(value).dtype.name
    return name


def _value(key: str, name: str, text: str, *, array: bool) -> Any:  # noqa: ANN401
    if not array:
        return _scalar(key, name, text)
    try:
        items = _parsed(key, text)
    except ValueError:
        items = None
    if not isinstance(items, list):
        raise UsageError(f"--set {key}: an array is written as JSON: [1, 2]")
    values = [
        _scalar(key, name, item if isinstance(item, str) else json.dumps(item)) for item in items
    ]
    return values if name == "string" else np.array(values, SCALARS.get(name, np.bool_))


def _scalar(key: str, name: str, text: str) -> Any:  # noqa: ANN401
    wrong = UsageError(f"--set {key}: {text!r:.80} is not a {name}")
    if name == "string":
        if not is_utf8(text):
            raise wrong
        return text
    if name == "bool":
        if text.lower() not in BOOLEANS:
            raise wrong
        return BOOLEANS[text.lower()]
    dtype = SCALARS[name]
    try:
        number = float(text) if dtype.kind == "f" else int(text, 0)
        with np.errstate(over="raise"):
            return np.array(number).astype(dtype)[()] if dtype.kind == "f" else dtype.type(number)
    except (ValueError, OverflowError, FloatingPointError):
        raise wrong from None


def _safetensors(description: Description, edits: MetadataEdits) -> Description:
    return replace(
        description, metadata=_removed(description.metadata, edits) | dict(edits.settings)
    )


def _folder(description: Description, edits: MetadataEdits) -> Description:
    """Edit config.json: dots lead into tables; a value is JSON, or text if it is not."""
    config = json.loads(description.files[CONFIG])
    for key in edits.removed:
        *path, last = key.split(".")
        table = _table(config, path)
        if table is None or last not in table:
            raise _absent(key, config)
        del table[last]
    for key, text in edits.settings:
        *path, last = key.split(".")
        if len(path) > MAX_DEPTH:
            raise UsageError(f"--set {key:.80}: more than {MAX_DEPTH} tables in each other")
        table = _table(config, path, make=True)
        if table is None:
            raise UsageError(f"--set {key}: what is before the last dot is not a table")
        table[last] = _json_value(key, text)
    data = (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()
    return replace(description, files={**description.files, CONFIG: data})


def _table(config: Content, path: list[str], *, make: bool = False) -> Content | None:
    """The table that a path of keys leads to; None if there is none."""
    for key in path:
        if make:
            config.setdefault(key, {})
        config = config.get(key)  # type: ignore[assignment]
        if not isinstance(config, dict):
            return None
    return config


def _json_value(key: str, text: str) -> object:
    try:
        value = _parsed(key, text)
    except ValueError:
        return text
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise UsageError(f"--set {key}: JSON has no number {text:.80}") from None
    return value


def _parsed(key: str, text: str) -> object:
    """The value of JSON; ValueError if it is none, UsageError if few would read it."""
    try:
        value = json.loads(text)
        too_deep = _is_deeper(value, MAX_DEPTH)
    except RecursionError:
        too_deep = True
    if too_deep:
        raise UsageError(f"--set {key:.80}: JSON is nested more than {MAX_DEPTH} levels deep")
    return value


def _is_deeper(value: object, most: int) -> bool:
    """Return whether lists and tables lie in each other more than so often."""
    if not isinstance(value, dict | list):
        return False
    within = value.values() if isinstance(value, dict) else value
    return not most or any(_is_deeper(item, most - 1) for item in within)


def _removed(content: Mapping[str, Any], edits: MetadataEdits) -> Content:
    for key in edits.removed:
        if key not in content:
            raise _absent(key, content)
    return {key: value for key, value in content.items() if key not in edits.removed}


def _absent(key: str, content: Mapping[str, Any]) -> UsageError:
    return UsageError(f"--remove {key}: there is no such key", hint=did_you_mean(key, content))


def _npz(_description: Description, _edits: MetadataEdits) -> Description:
    raise UsageError("an .npz file has no metadata for --set and --remove")


EDITORS: Mapping[Target, Callable[[Description, MetadataEdits], Description]] = {
    "gguf": _gguf,
    "hf": _folder,
    "safetensors": _safetensors,
    "npz": _npz,
}
