"""Values in a manifest's tables: each is right, or a ValueError names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def given(item: Mapping[str, Any], key: str, is_right: Callable[[Any], bool]) -> Any:  # noqa: ANN401 - as JSON has it
    """The value of a key that has to be there."""
    value = item.get(key)
    if not is_right(value):
        raise ValueError(f"{key!r} is {value!r:.40}")
    return value


def optional(item: Mapping[str, Any], key: str, is_right: Callable[[Any], bool]) -> Any:  # noqa: ANN401
    """The value of a key, or None where there is none."""
    return None if item.get(key) is None else given(item, key, is_right)


def token(item: Mapping[str, Any], key: str) -> int | None:
    """A token, or a number of tokens, from 0 up; None where there is none."""
    found: int | None = optional(item, key, _is_token)
    return found


def tokens(item: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """A list of tokens; empty where there is none."""
    return tuple(given({key: item.get(key) or []}, key, _are_tokens))


def named_tokens(item: Mapping[str, Any], key: str) -> dict[str, int]:
    """Tokens by name; empty where there are none."""
    found: dict[str, int] = given({key: item.get(key) or {}}, key, _are_named_tokens)
    return found


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _are_tokens(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_token, value))


def _are_named_tokens(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_token, value.values()))
