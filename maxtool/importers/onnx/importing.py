"""A model as a graph: its nodes in order, each by the function of its operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from numpy.typing import NDArray

from maxtool.graph import Graph, Tensor
from maxtool.graph.executor import operations_by
from maxtool.importers.onnx.dead_state import drop_dead_state
from maxtool.importers.onnx.deciding import deciding_inputs
from maxtool.importers.onnx.graph_inputs import (
    fixed_values,
    input_types,
    is_sequence,
    require_inputs,
)
from maxtool.importers.onnx.index_limits import index_limits
from maxtool.importers.onnx.initializers import Initializers
from maxtool.importers.onnx.node_runner import NodeRunner
from maxtool.importers.onnx.operator_table import NEWEST, OLDEST
from maxtool.importers.onnx.origins import Origins
from maxtool.importers.onnx.problems import Problems
from maxtool.importers.onnx.scope import MISSING, Scope
from maxtool.importers.onnx.structure import OnnxModel
from maxtool.importers.onnx.survey import unsupported
from maxtool.importers.onnx.unread import drop_unread
from maxtool.importers.onnx.values import Sizes, TensorSequence, Value, as_tensor
from maxtool.parity.folding import FOLDING

SYMBOL = "entry_forward"


@dataclass(frozen=True)
class ImportedGraph:
    """A model as a graph.

    Attributes:
        graph: The graph; its weights have the names of the initializers.
        inputs: The names of its inputs, in order.
        outputs: The names of its outputs, likewise.
        limits: The largest sizes that calls may bring, by name.
        fixed: The elements of inputs that are constants, by name, in the types of the model.
        values: The least and the largest number of inputs that say what is read, by name.
    """

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    limits: Mapping[str, int]
    values: Mapping[str, tuple[int, int]]
    fixed: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def import_model(
    model: OnnxModel,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    fixed: Mapping[str, NDArray[Any]] | None = None,
    on_bytes: bool = True,
) -> ImportedGraph:
    """Trace the graph of a model.

    Args:
        model: The model.
        shapes: Sizes of inputs: numbers, or names of symbolic dimensions.
        fixed: Elements of inputs that become constants.
        on_bytes: Whether a quantized model is computed with bytes where there are kernels for
            them; with the floats that it is written in otherwise.

    Raises:
        UnfixedInputs: If elements of inputs decide shapes and are not fixed.
        ModelMismatch: If something of the model cannot be taken; everything is listed.
        UsageError: If there are no such inputs.
    """
    problems = Problems(lines=[*_versions(model)])
    for node, error in unsupported(model):
        problems.add(node, error)
    problems.check(str(model.path), {})
    drop_dead_state(model.graph)
    return _Importing(model, shapes or {}, fixed or {}).result(Origins(are_kept=on_bytes))


def _versions(model: OnnxModel) -> Iterator[str]:
    version = model.opsets.get("", NEWEST)
    if not OLDEST <= version <= NEWEST:
        yield f"opset {version} of ONNX; {OLDEST} to {NEWEST} are supported"


class _Importing:
    """One import: the graph that is traced, and what was found to be wrong."""

    def __init__(
        self,
        model: OnnxModel,
        shapes: Mapping[str, Sequence[int | str]],
        fixed: Mapping[str, NDArray[Any]],
    ) -> None:
        self.model = model
        self.initializers = Initializers(model.checkpoint)
        self.problems = Problems()
        declared = [one for one in model.graph.input if one.name not in model.checkpoint.tensors]
        names = [info.name for info in declared]
        self.sequences = {
            info.name: [f"{info.name}_{at}" for at in range(len(shapes))]
            for info in declared
            if is_sequence(info)
        }
        require_inputs("--shape", shapes, [*names, *chain(*self.sequences.values())])
        require_inputs("--fix", fixed, names)
        self.types, lines = input_types(
            [info for info in declared if info.name not in fixed], shapes
        )
        self.problems.lines += lines
        self.fixed, lines = fixed_values(declared, fixed)
        self.problems.lines += lines
        self.check({})

    def check(self, deciding: Mapping[int, Sequence[str]]) -> None:
        """Raise an error with all problems, if there are any."""
        self.problems.check(str(self.model.path), deciding)

    def result(self, origins: Origins) -> ImportedGraph:
        """Trace, and return the graph."""
        graph = Graph(SYMBOL, None, self.types.values())
        scope = Scope(self.model.opsets, initializer=partial(self.initializers.find, ""))
        scope.values |= dict(zip(self.types, graph.inputs, strict=True))
        scope.values |= self.fixed
        for name, items in self.sequences.items():
            found = (scope.values.pop(item) for item in items if item in scope.values)
            scope.values[name] = TensorSequence(tuple(found))  # type: ignore[arg-type]
        runner = NodeRunner(self.model, self.initializers, self.problems, origins)
        with graph, operations_by(FOLDING):
            runner.run(scope, self.model.graph.node)
            outputs = self._outputs(scope)
            deciding = deciding_inputs(
                graph,
                [*self.types],
                [one for _, error in self.problems.unknown for one in error.tensors],
            )
            self.problems.lines += self._unlimited(runner.limits)
            self.check(deciding)
            graph.output(*(graph.value(value) for value in outputs.values()))
        drop_unread(graph)
        fixed = {name: tensor.to_numpy() for name, tensor in self.fixed.items()}
        values = index_limits(graph, dict(zip(self.types, graph.inputs, strict=True)))
        return ImportedGraph(graph, tuple(self.types), tuple(outputs), runner.limits, values, fixed)

    def _unlimited(self, limits: Mapping[str, int]) -> Iterator[str]:
        """Sizes that would have to stay below a limit, and that no input has."""
        given = {name for kind in self.types.values() for dim in kind.shape for name in dim.names()}
        for name in sorted(limits.keys() - given):
            yield f"whether the size {name!r} is at most {limits[name]} is not known in advance"

    def _enter(self, tensors: dict[str, Tensor], name: str, value: Value) -> None:
        """Enter an output; the tensors of a sequence are called ``NAME_0``, ``NAME_1``, ..."""
        if isinstance(value, Tensor | Sizes):
            tensors[name] = as_tensor(value)
        elif isinstance(value, TensorSequence):
            for at, item in enumerate(value.items):
                self._enter(tensors, f"{name}_{at}", item)
        else:
            self.problems.lines.append(f"output {name!r}: it is absent")

    def _outputs(self, scope: Scope) -> dict[str, Tensor]:
        """The tensors of the outputs by name; what is none is a problem."""
        tensors: dict[str, Tensor] = {}
        for info in self.model.graph.output:
            try:
                value = scope.find(info.name)
            except KeyError:
                self.problems.lines.append(f"output {info.name!r}: no node gives it")
                continue
            if info.name in tensors:
                self.problems.lines.append(f"output {info.name!r}: another output has its name")
            elif value is not MISSING:
                self._enter(tensors, info.name, value)
        if not self.model.graph.output:
            self.problems.lines.append("the model has no outputs")
        return tensors
