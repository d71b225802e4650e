"""Tables as TOML, a line for each key of a section, which people are to read and to edit."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def section(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a section; no name is that of the root."""
    if name:
        yield f"[{name}]"
    yield from (f"{key(text)} = {inline(value)}" for text, value in table.items())


def key(text: str) -> str:
    """A key, in quotes where it needs them."""
    return text if _BARE.fullmatch(text) else _quoted(text)


def inline(value: Any) -> str:  # noqa: ANN401 - whatever TOML holds
    """A value on one line; ``TypeError`` if TOML has none such."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key(name)} = {inline(each)}' for name, each in value.items())} }}"
    raise TypeError(f"TOML holds no {type(value).__name__}")


def _quoted(text: str) -> str:
    """A basic string. JSON escapes as TOML does, but for surrogates, which no TOML holds."""
    return json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )
