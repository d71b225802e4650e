"""Requests that a ``tokenizer.json`` may not make of the library, which would follow them.

The library checks types and ids. It does not check what memory a map of characters claims, nor how
long a text becomes that is changed again and again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maxtool.runtime.loader.charsmap import SIZE, encoded_problem

# How many characters one may become, by all steps together; what is known needs some hundreds.
MAX_GROWTH = 1 << 16
# Characters put before a text, tokens put around it, and pieces of a template.
MAX_PREFIX, MAX_AROUND, MAX_PIECES = 4096, 1024, 64
# The most that Unicode makes of one character: of U+FDFA, and of U+1F82.
COMPATIBLE, CANONICAL = 18, 4
PARTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}

Json = Any  # whatever a file has


def find_problem(root: Mapping[str, Json]) -> str | None:
    """The first request of a ``tokenizer.json`` that is not to be followed, or None."""
    problems = [*_maps(root), *_growing(root), *_around(root.get("post_processor"))]
    return problems[0] if problems else None


def _steps(part: Json, key: str) -> Iterator[Mapping[str, Json]]:
    """The steps of a part, those of sequences one by one."""
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if isinstance(step, dict):
            yield step
            inside = step.get(key)
            waiting += reversed(inside) if isinstance(inside, list) else []


def _maps(root: Mapping[str, Json]) -> Iterator[str]:
    for step in _steps(root.get("normalizer"), PARTS["normalizer"]):
        encoded = step.get("precompiled_charsmap")
        problem = encoded_problem(encoded.encode()) if isinstance(encoded, str) else None
        if problem is not None:
            yield f"precompiled_charsmap: {problem}"


def _growing(root: Mapping[str, Json]) -> Iterator[str]:
    for part, key in PARTS.items():
        growth, prefix = 1, 0
        for step in _steps(root.get(part), key):
            growth = min(growth * _growth(step), MAX_GROWTH + 1)
            prefix += len(str(step.get("prepend") or ""))
        if prefix > MAX_PREFIX:
            yield f"{part}: puts {prefix} characters before each text"
        if growth > MAX_GROWTH:
            yield f"{part}: may make more than {MAX_GROWTH} characters of one"


def _growth(step: Mapping[str, Json]) -> int:
    """Return the largest number of characters a step may make of one."""
    measure = GROWTHS.get(str(step.get("type")))
    return 1 if measure is None else max(1, measure(step))


def _replaced(step: Mapping[str, Json]) -> int:
    """A text is found where it is, a regular expression perhaps between all characters."""
    content = step.get("content")
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else None
    length = len(content) if isinstance(content, str) else 0
    return -(-length // len(text)) if isinstance(text, str) and text else length + 1


def _mapped(step: Mapping[str, Json]) -> int:
    """The longest text of a map; one that is none has been refused."""
    encoded = str(step.get("precompiled_charsmap") or "")
    if encoded_problem(encoded.encode()) is not None:
        return 1
    data = base64.b64decode(encoded)
    texts = data[SIZE + int.from_bytes(data[:SIZE], "little") :].decode()
    return max(map(len, texts.split("\0")))


GROWTHS: Mapping[str, Callable[[Mapping[str, Json]], int]] = {
    "Replace": _replaced,
    "Precompiled": _mapped,
    "ByteLevel": lambda _: 4,
    "NFKC": lambda _: COMPATIBLE,
    "NFKD": lambda _: COMPATIBLE,
    "NFC": lambda _: CANONICAL,
    "NFD": lambda _: CANONICAL,
}


def _around(processor: Json) -> Iterator[str]:
    """Templates that repeat a text, or put a great many tokens around it."""
    for step in _steps(processor, "processors"):
        tokens = step.get("special_tokens")
        known = tokens.values() if isinstance(tokens, dict) else ()
        count = sum(_length(token.get("ids")) for token in known if isinstance(token, dict))
        pieces = max(_length(step.get("single")), _length(step.get("pair")))
        if count > MAX_AROUND or pieces > MAX_PIECES:
            yield f"post_processor: a template of {pieces} pieces and {count} tokens"


def _length(value: Json) -> int:
    return len(value) if isinstance(value, list) else 0
