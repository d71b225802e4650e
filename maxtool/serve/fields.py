"""Fields of a JSON body: each is read by a function that says what it must be.

A request is refused for a field that is not known, and for one that asks for something that cannot
be done here: an answer that pays no heed to a part of the question would be a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from maxtool.runtime.loader.strict_json import strict_loads
from maxtool.serve.refusal import Refusal, wrong

# Gives the value of a field, or raises a ValueError that says what it must be.
Reader: TypeAlias = Callable[[Any], Any]


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; refuses what is none, and numbers that JSON does not have."""
    try:
        content = strict_loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, f"the body is not JSON: {reason:.200}") from None
    if not isinstance(content, dict):
        raise Refusal(400, "the body is not a JSON object")
    return content


def read(content: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """The values of fields that are there and not null, each as its reader gives it."""
    values = {}
    for name, value in content.items():
        if value is None:
            continue
        if name not in readers:
            raise wrong(name, f"is not known; known are {', '.join(readers)}")
        values[name] = _value(name, value, readers[name])
    return values


def _value(name: str, value: object, reader: Reader) -> object:
    try:
        return reader(value)
    except ValueError as error:
        raise wrong(name, str(error)) from None


def flag(value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def text(value: object) -> str:
    """Read a string without half of a character, which JSON can write and nobody encode."""
    if isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value):
        return value
    raise ValueError("must be a string of valid text")


def number(value: object) -> float:
    """Read a number, refused where no float can hold it."""
    if type(value) not in (int, float):
        raise ValueError("must be a number")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError("is too large") from None


def whole(least: int, most: int | None = None) -> Reader:
    """Return a reader of whole numbers in a range."""
    limits = f"from {least} up" if most is None else f"from {least} to {most}"

    def reader(value: object) -> int:
        if type(value) is int and least <= value and (most is None or value <= most):
            return value
        raise ValueError(f"must be a whole number {limits}")

    return reader


def strings(most: int, longest: int) -> Reader:
    """Return a reader of a string or a list of them, as a tuple."""

    def reader(value: object) -> tuple[str, ...]:
        values = value if isinstance(value, list) else [value]
        if len(values) > most:
            raise ValueError(f"must be at most {most} strings")
        read = tuple(map(text, values))
        if max(map(len, read), default=0) > longest:
            raise ValueError(f"must be strings of at most {longest} characters")
        return read

    return reader


def one_of(*words: str) -> Reader:
    """Return a reader of one of some words."""

    def reader(value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise ValueError(f"must be {' or '.join(map(repr, words))}")

    return reader


def only(*values: object, instead: str = "leave it out") -> Reader:
    """Return a reader of what would change nothing: anything else is not supported."""

    def reader(value: object) -> object:
        if any(type(value) is type(known) and value == known for known in values):
            return value
        raise ValueError(f"is not supported; {instead}")

    return reader


def within(readers: Mapping[str, Reader]) -> Reader:
    """Return a reader of an object with fields of its own."""

    def reader(value: object) -> dict[str, Any]:
        return read(mapping(value), readers)

    return reader


def mapping(value: object) -> dict[str, Any]:
    """Read an object of any fields."""
    if isinstance(value, dict):
        return value
    raise ValueError("must be an object")


def anything(value: object) -> object:
    """Read what has no bearing on the answer."""
    return value
