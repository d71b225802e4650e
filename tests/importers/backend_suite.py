"""The backend test suite inside the onnx package: its cases, and how one is judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from maxtool.errors import MaxtoolError
from maxtool.graph import Tensor
from maxtool.graph.executor import find_executor
from maxtool.importers.onnx import ImportedGraph, import_model, open_model
from maxtool.importers.onnx.problems import UnfixedInputs
from maxtool.nn.weight_binding import bound_data, elements
from maxtool.parity import evaluate

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# From the inputs of a data set, by name, to the outputs.
Run = Callable[[ImportedGraph, Mapping[str, np.ndarray]], Sequence[np.ndarray]]
MOST_ATTEMPTS = 4


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    test: Any

    @property
    def model(self) -> onnx.ModelProto:
        if self.test.model is not None:
            return self.test.model
        return onnx.load(Path(self.test.model_dir) / "model.onnx")

    def data_sets(self) -> Iterator[tuple[list[Any], list[Any]]]:
        if self.test.data_sets is not None:
            for inputs, outputs in self.test.data_sets:
                yield [*map(_plain, inputs)], [*map(_plain, outputs)]
            return
        for folder in sorted(Path(self.test.model_dir).glob("test_data_set_*")):
            yield tuple(
                [
                    self._load(folder / f"{side}_{i}.pb", i, side)
                    for i in range(self._count(folder, side))
                ]
                for side in ("input", "output")
            )

    @staticmethod
    def _count(folder: Path, side: str) -> int:
        return len(list(folder.glob(f"{side}_*.pb")))

    def _load(self, file: Path, index: int, side: str) -> Any:
        declared = getattr(self.model.graph, side)[index].type.WhichOneof("value")
        content = file.read_bytes()
        if declared == "tensor_type":
            return numpy_helper.to_array(onnx.TensorProto.FromString(content))
        return content


def _plain(value: Any) -> Any:
    """A tensor as an array; sequences and optionals as they are."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value


def items(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Arrays by name, those of a sequence as the importer names them."""
    result = {}
    for name, value in values.items():
        if isinstance(value, list):
            result |= {f"{name}_{at}": np.asarray(one) for at, one in enumerate(value)}
        else:
            result[name] = value
    return result


@cache
def cases() -> dict[str, Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {
            f"{kind}/{test.name}": Case(test.name, kind, test)
            for kind in KINDS
            for test in load_model_tests(kind=kind)
        }


@dataclass(frozen=True)
class Outcome:
    """``passed``, ``refused`` with a message, or ``wrong`` with what differs."""

    state: str
    why: str = ""


def imported(case: Case, folder: Path, inputs: Mapping[str, Any]) -> ImportedGraph:
    """The case's graph; inputs that the importer asks for are fixed."""
    path = folder / f"{case.name}.onnx"
    if not path.exists():
        path.write_bytes(case.model.SerializeToString())
    model = open_model(path)
    shapes = {name: array.shape for name, array in items(inputs).items() if name not in inputs}
    fixed: dict[str, np.ndarray] = {}
    for _ in range(MOST_ATTEMPTS):
        try:
            return import_model(model, fixed=fixed, shapes=shapes)
        except UnfixedInputs as error:
            fixed |= {name: inputs[name] for name in error.names}
    raise AssertionError(f"{case.name}: it asks for fixed inputs again and again")


def by_definitions(graph: ImportedGraph, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    weights = Weights(graph)
    return evaluate(graph.graph, [inputs[name] for name in graph.inputs], weights)


class Weights(dict):
    def __init__(self, graph: ImportedGraph) -> None:
        super().__init__(graph.graph.borrowed | graph.graph.owners)

    def __getitem__(self, name: str) -> np.ndarray:
        return elements(bound_data(name, super().__getitem__(name)))


def outcome(case: Case, folder: Path, run: Run = by_definitions) -> Outcome:
    """Import, run on each data set, and compare."""
    names = [info.name for info in case.model.graph.input]
    for inputs, expected in case.data_sets():
        given = dict(zip(names, inputs, strict=False))
        try:
            graph = imported(case, folder, given)
        except MaxtoolError as error:
            return Outcome("refused", str(error))
        results = run(graph, items(given))
        expected = [*items(dict(enumerate(expected))).values()]
        if len(results) != len(expected):
            return Outcome("wrong", f"{len(results)} outputs, not {len(expected)}")
        for name, actual, wanted in zip(graph.outputs, results, expected, strict=True):
            if problem := difference(case, graph, name, actual, wanted):
                return Outcome("wrong", f"{name}: {problem}")
    return Outcome("passed")


def difference(case: Case, graph: ImportedGraph, name: str, actual: Any, wanted: Any) -> str:
    """Describe how an output differs from the expected one; empty if it does not."""
    output = dict(zip(graph.outputs, graph.graph.outputs, strict=True))[name]
    if output.dtype.to_numpy() != wanted.dtype:
        return f"{output.dtype.value}, not {wanted.dtype}"
    if actual.shape != wanted.shape:
        return f"shape {actual.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "iu" and wanted.dtype.itemsize == 1 and _rounds(graph):
        steps = np.abs(actual.astype(int) - wanted.astype(int))
        return "" if steps.max(initial=0) <= 1 else f"{actual} is not {wanted}"[:300]
    if wanted.dtype.kind in "biu":
        return "" if np.array_equal(actual, wanted) else f"{actual} is not {wanted}"[:300]
    fits = close(case, actual, wanted)
    if fits.all():
        return ""
    return f"{actual[~fits][:5]} is not {wanted[~fits][:5]}"[:300]


def _rounds(graph: ImportedGraph) -> bool:
    """Return whether numbers are rounded, where float64 may decide a tie of float32 otherwise."""
    return any(getattr(node, "op", "") == "round" for node in graph.graph.nodes)


def close(case: Case, actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Compare floats as the case says; those of 16 bits by two of their last places.

    What is expected may be off by a last place of the largest element, where sums cancel.
    """
    digits = 2 * float(ml_dtypes.finfo(wanted.dtype).eps)
    rtol = max(case.test.rtol, digits if digits > 1e-5 else 0)
    wide = (actual.astype(np.float64), wanted.astype(np.float64))
    finite = np.abs(wide[1][np.isfinite(wide[1])])
    atol = max(case.test.atol, digits / 2 * float(finite.max(initial=0)))
    return np.isclose(*wide, rtol, atol, equal_nan=True)


def by_compiler(graph: ImportedGraph, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Compute the outputs by compiling the graph for this machine."""
    weights = Weights(graph)
    values = {name: np.ascontiguousarray(weights[name]) for name in graph.graph.weight_values}
    compiled = find_executor().compile(graph.graph, values)
    return [one.to_numpy() for one in compiled(*(Tensor(inputs[name]) for name in graph.inputs))]
