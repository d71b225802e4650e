"""Options whose value may be left out: ``--check`` alone, or ``--check transformers``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

CHECKS = ("graph", "transformers", "onnxruntime")
VALUES: Mapping[str, Sequence[str]] = {"--check": CHECKS}
"""The values of such options; the first one is meant where none follows."""


class CommandWithOptionalValues(TyperCommand):
    """A command with options in ``VALUES``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        """Parse arguments in which such options have their values."""
        return super().parse_args(ctx, with_values(args))


def with_values(arguments: Sequence[str]) -> list[str]:
    """Arguments in which each option of ``VALUES`` has a value.

    What follows such an option is its value only if it is one, or a mistyped one: a file of such a
    name is written ``./graph``.
    """
    result: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            return [*result, argument, *rest]
        if values := VALUES.get(argument):
            value = rest.pop(0) if rest and _is_meant(rest[0], values) else values[0]
            argument = f"{argument}={value}"
        result.append(argument)
    return result


def _is_meant(argument: str, values: Sequence[str]) -> bool:
    """Return whether an argument is one of the values, or close to one and not a file."""
    if argument in values:
        return True
    from maxtool.weights.names import did_you_mean

    is_word = argument.isalpha() and not os.path.lexists(argument)
    return is_word and did_you_mean(argument[:80], values) is not None
