"""Tables of a ``config.json`` that describe the language model among other parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_TABLES = ("text_config", "llm_config", "language_config")


def said_of_texts(config: Mapping[str, Any], key: str) -> object:
    """Return what a configuration says, or a table of the language model where it says nothing."""
    tables = (config.get(name) for name in TEXT_TABLES)
    said = (each.get(key) for each in (config, *tables) if isinstance(each, Mapping))
    return next((value for value in said if value is not None), None)
