"""Special tokens as files of Hugging Face name them."""

from __future__ import annotations


def content_of(entry: object) -> str | None:
    """The text of a special token, which is a string or an object with ``content``."""
    match entry:
        case str(text) | {"content": str(text)}:
            return text
    return None
