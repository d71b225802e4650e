"""Registration of the executor of operations; without one, the compiler is imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from maxtool.graph import Tensor, TensorType, executor, ops
from maxtool.graph.ops import operation_table
from maxtool.graph.ops.operation_cache import OperationCache


class Recording:
    """An executor that adds by NumPy, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def prepared(
        self, op: str, types: Sequence[TensorType], *_: object
    ) -> Callable[[Sequence[Tensor]], tuple[Tensor, ...]]:
        self.asked.append(f"{op} {', '.join(map(str, types))}")
        return lambda operands: (Tensor(sum(operand.to_numpy() for operand in operands)),)


def test_the_executor_registered_last_runs_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = Recording(), Recording()
    monkeypatch.setattr(executor, "_registered", [])
    monkeypatch.setattr(
        operation_table, "REPEATING", OperationCache()
    )  # what was prepared before is kept
    for each in (first, last):
        executor.register(lambda each=each: each)
    assert ops.add(Tensor([1.0]), Tensor([2.0])).item() == 3.0
    assert (len(first.asked), len(last.asked)) == (0, 1)
    assert last.asked[0].startswith("add ")


def test_the_compiler_is_imported_when_something_is_to_run() -> None:
    code = """
import sys
from maxtool.graph import Tensor
from maxtool.graph.executor import PROVIDER
one = Tensor([1.0])
print(PROVIDER in sys.modules, (one + one).item(), PROVIDER in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "2.0", "True"]
