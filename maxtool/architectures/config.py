"""Reading a resolved configuration into a typed one, with every problem reported at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from math import inf
from operator import ge, gt
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from maxtool.errors import ConfigurationError

T = TypeVar("T")

MAX_POSITIONS = 2**31 - 1  # a position is an int32


def typed(type_: type[T], values: Mapping[str, object], check: Callable[[T], list[str]]) -> T:
    """Return ``values`` as a dataclass that ``check`` finds no problems with; lists become tuples.

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
        if name in values
        and not any(_is(values[name], hint) for hint in _alternatives(hints[name]))
    ]
    problems = absent + unknown + wrong
    if not problems:
        config = type_(**{name: _frozen(value) for name, value in values.items()})
        problems = check(config)
        if not problems:
            return config
    raise ConfigurationError("the model's configuration does not work", problems=problems)


def out_of_range(
    config: object, positive: Iterable[str], not_negative: Iterable[str]
) -> Iterator[str]:
    """Yield a line for each number that is infinite or too small; None is fine."""
    for names, fits in ((positive, gt), (not_negative, ge)):
        for name in names:
            value = getattr(config, name)
            if value is not None and not (fits(value, 0) and value < inf):
                yield f"{name} is {value}"


def unsupported(config: object, choices: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield a line for each option that is none of its choices; None is fine."""
    for name, known in choices.items():
        value = getattr(config, name)
        if value is not None and value not in known:
            yield f"{name} {value!r}: supported are {', '.join(known)}"


def other_lengths(config: object, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each list that has not as many values as it must; None is fine."""
    for name, size in sizes.items():
        values = getattr(config, name)
        if values is not None and len(values) != size:
            yield f"{name} has {len(values)} values, not {size}"


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


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
