"""A line of a file of prompts: a text as it stands, or a JSON object with options of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from .errors import BadInput
from .prompts import Prompt
from .sampling import Sampling

TEXT, IDS, LABEL = "prompt", "ids", "id"
NUMBER = (int, float)
# What an object may hold besides a text or token ids, and a label: of which types each is.
OPTIONS: Mapping[str, tuple[type, ...]] = {
    "max_tokens": (int,),
    "stop": (list,),
    "temperature": NUMBER,
    "top_k": (int,),
    "top_p": NUMBER,
    "min_p": NUMBER,
    "repetition_penalty": NUMBER,
    "seed": (int,),
}
SAMPLING = [field.name for field in fields(Sampling)]


def read_line(line: str, usual: Prompt) -> tuple[Prompt, dict[str, object]]:
    """The prompt of a line, with the options of ``usual`` but for its own, and its label if any.

    Raises:
        BadInput: If it begins with a brace and is no object that says what to continue.
    """
    if not line.startswith("{"):
        return replace(usual, text=line), {}
    content = _object(line)
    if unknown := content.keys() - {TEXT, IDS, LABEL, *OPTIONS}:
        known = ", ".join([TEXT, IDS, LABEL, *OPTIONS])
        raise BadInput(f"unknown: {', '.join(sorted(unknown)):.80}", hint=f"it may have {known}")
    for name, types in OPTIONS.items():
        if name in content and (type(content[name]) not in types):
            raise BadInput(f"{name!r} is {content[name]!r:.40}")
    if not all(isinstance(text, str) for text in content.get("stop", ())):
        raise BadInput(f"'stop' is {content['stop']!r:.40}, not a list of texts")
    sampling = {name: content[name] for name in SAMPLING if name in content}
    prompt = Prompt(
        _text(content),
        content.get("max_tokens", usual.max_tokens),
        replace(usual.sampling, **sampling),
        tuple(content.get("stop", usual.stops)),
    )
    return prompt, {LABEL: content[LABEL]} if LABEL in content else {}


def _object(line: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        what = f"a line that begins with {{ is a JSON object: {error}"
        raise BadInput(what, hint="a text that begins so is written as a JSON object") from None
    return dict(content)


def _text(content: Mapping[str, Any]) -> str | list[int]:
    """The text, or the token ids, of which there is one."""
    text, ids = content.get(TEXT), content.get(IDS)
    if isinstance(text, str) and ids is None:
        return text
    if isinstance(ids, list) and text is None and all(type(token) is int for token in ids):
        return ids
    raise BadInput(f"a JSON object has {TEXT!r}, a text, or {IDS!r}, a list of token ids")
