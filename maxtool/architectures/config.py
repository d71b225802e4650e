"""Reading a resolved configuration into a typed one, with every problem reported at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from maxtool.errors import ConfigurationError

T = TypeVar("T")


def typed(type_: type[T], values: Mapping[str, object], check: Callable[[T], list[str]]) -> T:
    """Return ``values`` as a dataclass. Lists become tuples.

    Args:
        type_: The dataclass.
        values: Its fields by name.
        check: Lists what is wrong with the values although they have their types.

    Raises:
        ConfigurationError: Listing each field that is missing, unknown, of the wrong type or wrong.
    """
    hints = get_type_hints(type_)
    declared = {field.name: field for field in fields(type_)}  # type: ignore[arg-type]
    absent = [
        f"{name} is missing"
        for name, field in declared.items()
        if name not in values and field.default is MISSING
    ]
    unknown = [
        f"{name} is not a field of {type_.__name__}" for name in values if name not in declared
    ]
    wrong = [
        f"{name} is {values[name]!r}, not {_described(hints[name])}"
        for name in declared
        if name in values and not _fits(values[name], hints[name])
    ]
    problems = absent + unknown + wrong
    if not problems:
        config = type_(**{name: _frozen(value) for name, value in values.items()})
        problems = check(config)
        if not problems:
            return config
    raise ConfigurationError("the model's configuration does not work", problems=problems)


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _fits(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type
    return any(_is(value, alternative) for alternative in _alternatives(hint))


def _is(value: object, hint: Any) -> bool:  # noqa: ANN401 - a type
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return isinstance(value, tuple | list) and all(_is(one, item) for one in value)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, hint) or (isinstance(value, int) and hint is float)


def _alternatives(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    """The members of a union; any other type alone."""
    return (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)


def _described(hint: Any) -> str:  # noqa: ANN401 - a type
    return " or ".join(map(_name, _alternatives(hint)))


def _name(hint: Any) -> str:  # noqa: ANN401 - a type
    if get_origin(hint) is tuple:
        return f"a list of {get_args(hint)[0].__name__}"
    return "null" if hint is type(None) else str(hint.__name__)
