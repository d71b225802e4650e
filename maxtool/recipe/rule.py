"""Rules of a recipe: how parameters are made from tensors, sizes not yet resolved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maxtool.errors import ConfigurationError
from maxtool.recipe.name_patterns import Pattern, Rename
from maxtool.recipe.operations import OPERATIONS
from maxtool.recipe.step import Step

# A size in a recipe: a number, a field of the configuration, or the product of several.
Size = int | str | tuple[int | str, ...]


@dataclass(frozen=True)
class Rule:
    """Rule by which the tensors of one dialect make a parameter."""

    target: Pattern  # the parameter's name
    sources: tuple[Pattern, ...]  # names of the tensors it is made from
    steps: tuple[Step, ...] = ()  # what is done to them, sizes not yet resolved
    over: str | None = None  # the index that runs over the tensors of one stack
    part: int | None = None  # which output of its split this parameter is
    tie: str | None = None  # the parameter it is the same as, when ``when`` holds
    # Field values under which the tie holds or, without one, the rule.
    when: Mapping[str, Any] = field(default_factory=dict)
    lost: str = ""  # why this dialect has no place for the parameter, where it has none
    zero: bool = False  # whether the dialect takes it for 0 then
    # The parameter whose tensors it is made of too, by these steps behind that one's own; it is
    # never written itself.
    of: str | None = None

    def tied(self, values: Mapping[str, Any]) -> bool:
        """Return whether the parameter is another one under this configuration."""
        return self.tie is not None and self._holds(values, {})

    def applies(self, values: Mapping[str, Any], indices: Mapping[str, int]) -> bool:
        """Return whether the parameter at these indices is made by this rule."""
        return self.tie is not None or self._holds(values, indices)

    def _holds(self, values: Mapping[str, Any], indices: Mapping[str, int]) -> bool:
        return all(
            _value_at(values.get(name), indices) == wanted for name, wanted in self.when.items()
        )

    @property
    def split(self) -> int:
        """Number of steps up to the split that ``part`` chooses from."""
        if self.part is None:
            return 0
        return next((i + 1 for i, step in enumerate(self.steps) if step.op == "split"), 0)


def _value_at(value: Any, indices: Mapping[str, int]) -> Any:  # noqa: ANN401
    """A field's value for one layer; no flags at all mean that all are set."""
    if value is None:
        return True
    layer = indices.get("layer")
    inside = isinstance(value, tuple) and layer is not None and layer < len(value)
    return value[layer] if inside else value


@dataclass(frozen=True)
class Rules:
    """All rules of one dialect."""

    rules: tuple[Rule, ...]
    drop: tuple[Pattern, ...] = ()  # tensors that are not needed to run
    # Tensors of layers behind the last, by the key that says how many of these there are.
    past_layers: Mapping[str, tuple[Pattern, ...]] = field(default_factory=dict)
    # Tensors that say the model is not supported, with the reason.
    refuse: Mapping[Pattern, str] = field(default_factory=dict)
    rename: tuple[Rename, ...] = ()  # other spellings of names, applied in order before all else


def resolve_size(size: Size, values: Mapping[str, Any]) -> int:
    """The number a size stands for under a configuration.

    Raises:
        ConfigurationError: If it is a field that is null.
    """
    if isinstance(size, tuple):
        return math.prod(resolve_size(factor, values) for factor in size)
    if not isinstance(size, str):
        return size
    if values[size] is None:
        raise ConfigurationError(f"a rule has the size {size}, which is null in this model")
    return int(values[size])


def resolve_step(step: Step, values: Mapping[str, Any]) -> Step:
    """``step`` with every size as a number."""
    kinds = OPERATIONS[step.op].params
    return Step(step.op, {key: _resolve(kinds[key], step.params[key], values) for key in kinds})


def _resolve(kind: str, value: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if kind in ("size", "rows"):
        return resolve_size(value, values)
    if kind == "sizes":
        return tuple(resolve_size(size, values) for size in value)
    if kind == "factors":
        return tuple(_factor(name, values) for name in value)
    if kind == "numbers":
        return values[value] or ()
    return value


def _factor(name: str, values: Mapping[str, Any]) -> float:
    """The number of a field, or one of its numbers; 1 where there are none."""
    field_name, _, index = name.partition(".")
    value = values[field_name]
    if value is None or (index and int(index) >= len(value)):
        return 1.0
    return float(value[int(index)] if index else value)
