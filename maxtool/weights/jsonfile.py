"""JSON from strangers: bounded, without duplicate keys, with the byte offset of what is wrong."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from maxtool.errors import MalformedFile
from maxtool.weights.source_file import read_file

# config.json and shard indexes; the largest published index is below 10 MB.
MAX_JSON_BYTES = 100_000_000
# Memory that parsing may take: a budget, and what text and the objects in it cost at least. Three
# bytes of JSON can become an object of 64, so a limit on the file's size alone would not do.
MAX_JSON_MEMORY = 88_000_000
TEXT_COST, WIDE_TEXT_COST = 2, 5
LARGEST_FLOAT = float(np.finfo(np.float32).max)
COSTS = {b"{": 70, b"[": 64, b":": 250, b",": 72}

Object = dict[str, object]


def read_object(path: Path, *, most: int = MAX_JSON_BYTES) -> dict[str, object]:
    """Read a file that holds one JSON object; see :func:`parse_object`."""
    return parse_object(read_file(path, most, "JSON"), file=path)


def parse_object(
    raw: bytes,
    *,
    file: Path,
    base: int = 0,
    memory: int = MAX_JSON_MEMORY,
    compact: Callable[[Object], object] | None = None,
) -> dict[str, object]:
    """Parse bytes that hold one JSON object.

    Args:
        raw: UTF-8 text.
        file: Named in errors.
        base: Where ``raw`` starts in ``file``.
        memory: Bytes of memory that parsing may be estimated to take.
        compact: Turns each object into what is kept of it, as soon as it is complete.

    Raises:
        MalformedFile: If it is not UTF-8, not JSON, no object, repeats a key, or holds too much.
    """
    text = _text(raw, memory, file, base)

    def made(pairs: list[tuple[str, object]]) -> object:
        content = _unique(pairs)
        return content if compact is None else compact(content)

    try:
        with uncollected():
            content = json.loads(text, object_pairs_hook=made)
    except json.JSONDecodeError as error:
        offset = base + len(text[: error.pos].encode())
        raise MalformedFile(f"not valid JSON: {error.msg}", file=file, offset=offset) from None
    except _DuplicateKeyError as error:
        raise MalformedFile(str(error), file=file) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise MalformedFile(f"not valid JSON: {reason}", file=file, offset=base) from None
    if not isinstance(content, dict):
        raise MalformedFile("the JSON is not an object", file=file, offset=base)
    return content


def is_float32(value: object) -> bool:
    """Return whether a value of JSON is a number that float32 can hold, rounded."""
    return type(value) in (int, float) and -LARGEST_FLOAT <= value <= LARGEST_FLOAT  # type: ignore[operator]


def _text(raw: bytes, memory: int, file: Path, base: int) -> str:
    """Decode, if parsing is worth its cost."""
    cost = len(raw) * (TEXT_COST if raw.isascii() else WIDE_TEXT_COST)
    cost += sum(raw.count(char) * each for char, each in COSTS.items())
    if cost > memory:
        what = f"JSON that may take {cost} bytes of memory; at most {memory} are accepted"
        raise MalformedFile(what, file=file, offset=base)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedFile("the JSON is not UTF-8", file=file, offset=base + error.start) from None


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects that all stay: the collector would only look at them over and over."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _DuplicateKeyError(Exception):
    pass


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(f"the JSON key {key!r} is there twice")
            seen.add(key)
    return content
