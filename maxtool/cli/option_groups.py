"""Groups of options: the fields of a dataclass, each an option of the command that takes it.

A command with many options names a group as the type of one parameter; what the user said arrives
as one object.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def flattened(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """The parameters, with those of its fields in the place of each group."""
    result: list[inspect.Parameter] = []
    for parameter in parameters:
        group = parameter.annotation
        result += _of_group(group) if is_dataclass(group) else [parameter]
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in result]


def gathered(
    parameters: Iterable[inspect.Parameter], arguments: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of the command itself, from those of the flattened parameters."""
    return {
        parameter.name: _object(parameter.annotation, arguments)
        if is_dataclass(parameter.annotation)
        else arguments[parameter.name]
        for parameter in parameters
    }


def _of_group(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _object(group: Any, arguments: Mapping[str, object]) -> object:  # noqa: ANN401 - a dataclass
    return group(**{field.name: arguments[field.name] for field in fields(group)})
