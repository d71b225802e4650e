"""Markup that is safe by its construction: whatever is not markup already is escaped."""

from __future__ import annotations

from html import escape

from maxtool.cli.output import printable

# Elements without contents, and an end.
VOID = {"meta", "br"}


class Markup(str):
    """Text of HTML or SVG that needs no escaping any more."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Text as markup; what it holds of control characters, also of direction, is spelled out."""
    return Markup(escape(printable(value)))


def joined(*parts: str, between: str = "") -> Markup:
    """Parts one after the other, those that are not markup escaped."""
    return Markup(between.join(part if isinstance(part, Markup) else text(part) for part in parts))


def element(tag: str, *parts: str, **attributes: str | float | None) -> Markup:
    """An element; attributes that are None are left out, and ``class_`` is ``class``."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{joined(*parts)}</{tag}>")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(printable(value))
    return f"{value:.2f}".rstrip("0").rstrip(".")
