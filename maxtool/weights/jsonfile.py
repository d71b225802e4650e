"""JSON from strangers: bounded, without duplicate keys, with the byte offset of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from maxtool.errors import MalformedFile
from maxtool.weights.source import map_file

# config.json and shard indexes; the largest published index is below 10 MB.
MAX_JSON_BYTES = 100_000_000


def read_object(path: Path, *, most: int = MAX_JSON_BYTES) -> dict[str, object]:
    """Read a file that holds one JSON object.

    Raises:
        MissingFile: If it cannot be read.
        MalformedFile: If it is too large, not UTF-8, not JSON, no object, or repeats a key.
    """
    raw = map_file(path)
    if len(raw) > most:
        raise MalformedFile(f"{len(raw)} bytes of JSON; at most {most} are accepted", file=path)
    return parse_object(raw[:], file=path)


def parse_object(raw: bytes, *, file: Path, base: int = 0) -> dict[str, object]:
    """Parse bytes that hold one JSON object.

    Args:
        raw: UTF-8 text.
        file: Named in errors.
        base: Where ``raw`` starts in ``file``.

    Raises:
        MalformedFile: If it is not UTF-8, not JSON, no object, or repeats a key.
    """
    try:
        text = raw.decode()
        content = json.loads(text, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise MalformedFile("the JSON is not UTF-8", file=file, offset=base + error.start) from None
    except json.JSONDecodeError as error:
        offset = base + len(text[: error.pos].encode())
        raise MalformedFile(f"not valid JSON: {error.msg}", file=file, offset=offset) from None
    except _DuplicateKeyError as error:
        raise MalformedFile(f"the JSON key {error.key!r} is there twice", file=file) from None
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise MalformedFile(f"not valid JSON: {reason}", file=file, offset=base) from None
    if not isinstance(content, dict):
        raise MalformedFile("the JSON is not an object", file=file, offset=base)
    return content


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return content
