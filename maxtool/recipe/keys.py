"""A checkpoint's configuration as flat keys, whatever file it is kept in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from maxtool.recipe import sentence_transformers
from maxtool.recipe.ignored_keys import IGNORED, NEVER_IGNORED, covered
from maxtool.recipe.schema import Dialect
from maxtool.weights import Checkpoint


class Keys:
    """A configuration as flat keys, nested ones dotted, values as plain Python ones."""

    def __init__(self, dialect: Dialect, values: Mapping[str, Any]) -> None:
        self.dialect = dialect
        self.values = values

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Keys:
        """The keys of config.json and of what lies beside it, or of a GGUF file's metadata."""
        if checkpoint.format == "gguf":
            return cls("gguf", {key: _plain(value) for key, value in checkpoint.metadata.items()})
        beside = sentence_transformers.read(checkpoint.folder)
        return cls("hf", {**dict(_leaves("", checkpoint.config or {})), **beside})

    def within(self, section: str) -> Keys:
        """The same with the keys of a table, if it has a name, over those beside it."""
        if not section or self.dialect == "gguf":
            return self
        prefix = f"{section}."
        inside = {k.removeprefix(prefix): v for k, v in self.values.items() if k.startswith(prefix)}
        beside = {k: v for k, v in self.values.items() if not k.startswith(prefix)}
        return Keys(self.dialect, beside | inside)

    def table(self, name: str) -> dict[str, Any]:
        """The contents of a table: the keys below it, but for those that are null."""
        below = f"{name}."
        inside = ((key, self.get(key)) for key in self.values if key.startswith(below))
        return {key.removeprefix(below): value for key, value in inside if value is not None}

    def get(self, key: str, *, switch: bool = False) -> Any:  # noqa: ANN401
        """The key's value, arrays as tuples; None where it is missing, or null.

        A ``switch`` that is null is false: transformers asks only whether it is true.
        """
        value = self.values.get(key)
        if switch and value is None and key in self.values:
            return False
        if isinstance(value, np.ndarray):
            return tuple(map(_plain, value)) if value.size <= MAX_ARRAY else value
        return value


def are_flags(values: Collection[Any]) -> bool:
    """Return whether the values of a key are true and false, or one of both."""
    return {*map(type, values)} == {bool}


def short(value: Any) -> str:  # noqa: ANN401
    """A value as a line can show it."""
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply to be shown"
    return text if len(text) <= 60 else f"{text[:57]}..."


def supported(values: tuple[Any, ...]) -> str:
    """List the supported values: ``none and linear are``, ``silu is`` or ``no value is``."""
    *others, last = map(str, values or ("no value",))
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


def _leaves(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        table_inside = isinstance(value, dict) and value and len(name) <= MAX_PREFIX
        if table_inside and not covered(name, WHOLE):
            yield from _leaves(f"{name}.", value)
        else:
            yield name, value


# Tables below a longer key stay whole: their leaves would repeat it, and nest without end.
MAX_PREFIX = 100
# Reported as one key each, not leaf by leaf.
WHOLE = IGNORED["hf"] | NEVER_IGNORED["hf"] | {"per_layer_config", "text_config.per_layer_config"}
# No array that describes a network is longer: one value a layer, or a frequency.
MAX_ARRAY = 1 << 16


def _plain(value: Any) -> Any:  # noqa: ANN401
    """A NumPy scalar as a Python one; a float32 as the shortest decimal that stands for it."""
    if isinstance(value, float | np.floating):
        return float(str(np.float32(value)))
    return value.item() if isinstance(value, np.generic) else value
