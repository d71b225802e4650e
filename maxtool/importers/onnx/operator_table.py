"""The table of operators: by domain and name, the function for each first opset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.values import Value

Results: TypeAlias = Value | Sequence[Value]
Operator: TypeAlias = Callable[[OperatorCall], Results]
Entered = TypeVar("Entered", bound=Operator)

OPERATORS: dict[tuple[str, str], dict[int, Operator]] = {}

MICROSOFT = "com.microsoft"
"""The domain of the operators that onnxruntime adds."""
CLASSICAL = "ai.onnx.ml"
"""The domain of ONNX's operators for classical models."""

OLDEST, NEWEST = 1, 28
"""Versions of ONNX's own operators that are known."""


def operator(*names: str, domain: str = "", since: int = 1) -> Callable[[Entered], Entered]:
    """Enter a function as that of operators, from an opset on."""

    def enter(function: Entered) -> Entered:
        for name in names:
            OPERATORS.setdefault((domain, name), {})[since] = function
        return function

    return enter


def find_operator(domain: str, name: str, version: int) -> Operator | None:
    """The function of an operator in a version of its domain; None if there is none."""
    versions = OPERATORS.get((domain, name), {})
    first = max((since for since in versions if since <= version), default=None)
    return None if first is None else versions[first]
