"""A line of a file of prompts: a text as it stands, or a JSON object with options of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from .errors import BadInput
from .prompts import Prompt
from .sampling import Sampling
from .strict_json import strict_loads

TEXT, IDS, LABEL = "prompt", "ids", "id"
WHOLE, NUMBER, STRINGS = "a whole number", "a number", "a list of strings"
TYPES: Mapping[str, tuple[type, ...]] = {WHOLE: (int,), NUMBER: (int, float), STRINGS: (list,)}
# What an object may hold besides a text or token ids, and a label: what each must be.
OPTIONS: Mapping[str, str] = {
    "max_tokens": WHOLE,
    "stop": STRINGS,
    "temperature": NUMBER,
    "top_k": WHOLE,
    "top_p": NUMBER,
    "min_p": NUMBER,
    "repetition_penalty": NUMBER,
    "seed": WHOLE,
}
# Stop strings of a line, and characters of each, at most: each token is compared with all.
MOST_STOPS, LONGEST_STOP = 64, 1024
SAMPLING = [field.name for field in fields(Sampling)]


def read_line(line: str, usual: Prompt) -> tuple[Prompt, dict[str, object]]:
    """The prompt of a line, with the options of ``usual`` but for its own, and its label if any.

    Raises:
        BadInput: If it begins with a brace and is not a JSON object that says what to continue.
    """
    if not line.startswith("{"):
        return replace(usual, text=line), {}
    content = _object(line)
    if unknown := content.keys() - {TEXT, IDS, LABEL, *OPTIONS}:
        known = ", ".join([TEXT, IDS, LABEL, *OPTIONS])
        what = f"unknown field: {', '.join(sorted(unknown)):.80}"
        raise BadInput(what, hint=f"it may have {known}")
    own = {name: _option(name, content[name]) for name in OPTIONS if name in content}
    prompt = replace(
        usual,
        text=_text(content),
        max_tokens=own.get("max_tokens", usual.max_tokens),
        sampling=replace(usual.sampling, **{name: own[name] for name in SAMPLING if name in own}),
        stops=tuple(own.get("stop", usual.stops)),
    )
    return prompt, _label(content)


def label_of(line: str) -> dict[str, object]:
    """The label of a line that is refused, as far as the line is a JSON object."""
    try:
        return _label(_object(line)) if line.startswith("{") else {}
    except BadInput:
        return {}


def _label(content: Mapping[str, Any]) -> dict[str, object]:
    return {LABEL: content[LABEL]} if LABEL in content else {}


def _object(line: str) -> dict[str, Any]:
    try:
        content = strict_loads(line)
    except (ValueError, RecursionError) as error:
        what = f"a line that begins with {{ must be a JSON object: {error}"
        hint = 'to continue a text that begins with {, write {"prompt": "{..."}'
        raise BadInput(what, hint=hint) from None
    return dict(content)


def _option(name: str, value: Any) -> Any:  # noqa: ANN401 - as the JSON has it
    """The value of an option, refused where it is something else than the option must be."""
    what = OPTIONS[name]
    good = type(value) in TYPES[what]
    if not good or (what == STRINGS and not all(isinstance(text, str) for text in value)):
        raise BadInput(f"{name!r} must be {what}, not {value!r:.40}")
    if what == STRINGS and (
        len(value) > MOST_STOPS or max(map(len, value), default=0) > LONGEST_STOP
    ):
        limits = f"{MOST_STOPS} strings of {LONGEST_STOP} characters"
        raise BadInput(f"{name!r} has at most {limits}")
    try:
        return float(value) if what == NUMBER else value
    except OverflowError:
        raise BadInput(f"{name!r} is too large") from None


def _text(content: Mapping[str, Any]) -> str | list[int]:
    """The text, or the token ids, of which there is one."""
    text, ids = content.get(TEXT), content.get(IDS)
    if isinstance(text, str) and ids is None:
        return text
    if isinstance(ids, list) and text is None and all(type(token) is int for token in ids):
        return ids
    raise BadInput(f"a JSON object has {TEXT!r}, a text, or {IDS!r}, a list of token ids")
