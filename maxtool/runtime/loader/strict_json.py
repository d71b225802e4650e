"""JSON without what Python reads and JSON does not have."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def strict_loads(text: str | bytes) -> Any:  # noqa: ANN401 - as the JSON has it
    """Read JSON; ``ValueError`` for NaN, infinities and numbers that are too large for a float.

    ``RecursionError`` if it is nested too deeply.
    """
    return json.loads(text, parse_float=_finite, parse_constant=_no_constant)


def _finite(text: str) -> float:
    """A number with a fraction or an exponent: one that is too large could not be repeated."""
    if math.isinf(value := float(text)):
        raise ValueError(f"{text:.40} is too large")
    return value


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
