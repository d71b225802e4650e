"""Lengths that sentence-transformers cuts texts to, of the several places that may say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEY, CALLS = "max_seq_length", "processing_kwargs"
TEMPLATE, LENGTH, CUTS = "chat_template", "max_length", "truncation"
# What tokenizers are called with, the first that says something deciding.
CALLED = ("text", "common")
NEVER = "do_not_truncate"
# Of a template's table, what goes to the tokenizer, or to sentence-transformers itself.
NOT_OF_TEMPLATES = (LENGTH, CUTS, "padding", "return_tensors", "restore_suffix")


def length_of(settings: Mapping[str, Any], *, templated: bool) -> object:
    """The length by ``sentence_bert_config.json``; None where it says none.

    Args:
        settings: The contents of the file.
        templated: Whether texts are put into a chat template, whose table comes first then.
    """
    calls = table_of(settings, CALLS)
    tables = [table_of(calls, name) for name in ((TEMPLATE,) if templated else ()) + CALLED]
    cuts = next((each[CUTS] for each in tables if CUTS in each), None)
    if cuts is False or cuts == NEVER:
        return None
    found = next((each[LENGTH] for each in tables if each.get(LENGTH) is not None), None)
    return settings.get(KEY) if found is None else found


def table_of(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A table within a table; empty where there is none."""
    value = holder.get(key)
    return value if isinstance(value, dict) else {}
