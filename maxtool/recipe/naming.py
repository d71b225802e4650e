"""Name of a model in what is written of it.

Its user may give one, else its checkpoint does, else it is named for its recipe and its size. Where
it lies is not a part of that: the same checkpoint in another folder gives the same bytes.
"""

from __future__ import annotations

import math
import re
from typing import Any

from maxtool.errors import UsageError
from maxtool.recipe.plan import Plan

GGUF_NAME = "general.name"
HF_NAME = "_name_or_path"
MAX_NAME = 200
SCALES = ((1e12, 1e-12, "T"), (1e9, 1e-9, "B"), (1e6, 1e-6, "M"), (0.0, 1e-3, "K"))
# A repository of the Hub, "organisation/model", or a model's name; never the way to a folder.
HUB_NAME = re.compile(r"(?:\w[\w.-]*/)?(\w[\w.-]*)")


def check_name(name: str | None) -> None:
    """Refuse a name that no file should carry."""
    if name is not None and not _is_name(name):
        what = f"--name takes 1 to {MAX_NAME} printable characters: {name!r:.80}"
        raise UsageError(what)


def model_name(planned: Plan) -> str:
    """The name of a model: its own, else its recipe's with its size (``llama 1.1B``)."""
    sizes = (math.prod(binding.shape) for binding in planned.parameters.values())
    return own_name(planned) or f"{planned.recipe.name} {size_label(sum(sizes))}"


def own_name(planned: Plan) -> str | None:
    """The name that a checkpoint gives itself: ``general.name`` or ``_name_or_path`` as a title."""
    checkpoint = planned.checkpoint
    if planned.dialect == "gguf":
        return _text(checkpoint.metadata.get(GGUF_NAME))
    said = _text((checkpoint.config or {}).get(HF_NAME))
    if said is None or " " in said:
        return said
    hub = HUB_NAME.fullmatch(said)
    return title(hub[1]) if hub else None


def title(name: str) -> str:
    """The name of a repository or folder as a title: its words, those in lower case capitalised."""
    words = [word for word in re.split(r"[-_\s]+", name) if word]
    return " ".join(word.capitalize() if word.islower() else word for word in words) or "Model"


def size_label(elements: int) -> str:
    """A number of elements in at least two digits, with a letter for its thousands: ``1.1B``."""
    factor, letter = next(row[1:] for row in SCALES if elements > row[0])
    scaled = elements * factor
    digits = len(str(round(scaled)).lstrip("0"))
    return f"{scaled:.{max(2 - digits, 0)}f}{letter}"


def _text(value: Any) -> str | None:  # noqa: ANN401 - a value of any of the dialect's types
    return value if isinstance(value, str) and _is_name(value) else None


def _is_name(text: str) -> bool:
    return text.strip() != "" and len(text) <= MAX_NAME and text.isprintable()
