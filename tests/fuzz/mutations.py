"""Mutations that keep an input's structure: JSON stays JSON, words and numbers stay in place."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

WHOLE = [0, 1, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30]
TEXTS = ["", "a", "\0", "\ud800", "\x1b[31m", "../link", "/", ".", "x" * 300, "9" * 400, "F32"]
OTHERS = [None, True, 0.5, -0.0, 1e300, float("inf"), float("nan"), [], {}, [[]], [2**62, 4]]
VALUES: list[Any] = [*WHOLE, *TEXTS, *OTHERS]
WORD = re.compile(r'"[^"\n]*"|[\w.]+|[\[\]{}=,]')
NUMBERS = [0, 1, 2, 31, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**62, 2**63 - 1, 2**63, 2**64 - 1]


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a JSON document, as what holds it and its key there."""
    waiting = [content]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def mutate_json(data: bytes, random: Random) -> bytes | None:
    """One value replaced, removed or repeated; None if the bytes are no JSON object."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    result = list(places(content)) if isinstance(content, dict) else []
    if not result:
        return None
    holder, key = random.choice(result)
    action = random.randrange(8)
    if action == 0:
        del holder[key]
    elif action == 1:
        source, where = random.choice(result)
        holder[key] = copy.deepcopy(source[where])
    elif action == 2 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif action == 2:
        holder[random.choice(["", "x", "\ud800", "a.b.c", "x" * 300])] = holder.pop(key)
    else:
        holder[key] = random.choice(VALUES)
    return json.dumps(content).encode()


def mutate_text(data: bytes, random: Random) -> bytes | None:
    """One word of a text replaced by another of it, or removed; None if the bytes are no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    words = list(WORD.finditer(text))
    if not words or "\0" in text:
        return None
    at = random.choice(words)
    others = [random.choice(words)[0], json.dumps(random.choice(VALUES)), "", f"{at[0]}, {at[0]}"]
    return (text[: at.start()] + random.choice(others) + text[at.end() :]).encode()


def mutate_number(data: bytes, random: Random) -> bytes:
    """A number of 1 to 8 bytes written over others."""
    width = random.choice([1, 2, 4, 8])
    if len(data) < width:
        return data
    at = random.randrange(len(data) - width + 1)
    number = random.choice(NUMBERS) % (1 << 8 * width)
    return data[:at] + number.to_bytes(width, "little") + data[at + width :]


def mutate(data: bytes, separator: bytes, random: Random) -> bytes:
    """One part of an input changed."""
    parts = data.split(separator)
    at = random.randrange(len(parts))
    structured = mutate_json(parts[at], random) or mutate_text(parts[at], random)
    parts[at] = structured or mutate_number(parts[at], random)
    return separator.join(parts)
