"""Reading a resolved configuration into a typed one, with every problem reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_args, get_type_hints

from maxtool.errors import ConfigurationError

T = TypeVar("T")


def typed(kind: type[T], values: Mapping[str, object]) -> T:
    """``values`` as the dataclass ``kind``, whose ``problems()`` checks what types cannot say.

    Raises:
        ConfigurationError: Listing each field that is missing, unknown, of the wrong type or wrong.
    """
    hints = get_type_hints(kind)
    declared = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    absent = [
        f"{name} is missing"
        for name, field in declared.items()
        if name not in values and field.default is MISSING
    ]
    unknown = [f"{name} is no field of {kind.__name__}" for name in values if name not in declared]
    wrong = [
        f"{name} is {values[name]!r}, not {_described(hints[name])}"
        for name in declared
        if name in values and not _fits(values[name], hints[name])
    ]
    problems = absent + unknown + wrong
    if not problems:
        config = kind(**values)
        problems = config.problems()  # type: ignore[attr-defined]
        if not problems:
            return config
    raise ConfigurationError("the model's configuration does not work", problems=problems)


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type
    kinds = get_args(hint) or (hint,)
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)


def _described(hint: Any) -> str:  # noqa: ANN401 - a type
    return " or ".join(kind.__name__ for kind in get_args(hint) or (hint,)).replace(
        "NoneType", "null"
    )
