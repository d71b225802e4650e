"""Special tokens as files of Hugging Face name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def content_of(entry: object) -> str | None:
    """The text of a special token, which is a string or an object with ``content``."""
    match entry:
        case str(text) | {"content": str(text)}:
            return text
    return None


def texts_of(config: Mapping[str, Any], usual: Mapping[str, str]) -> dict[str, str]:
    """The texts that ``tokenizer_config.json`` gives special tokens, the usual ones for others."""
    return {name: content_of(config.get(f"{name}_token")) or text for name, text in usual.items()}
