"""Nodes run in order: operands found, operators called, results named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from maxtool.graph import Tensor
from maxtool.importers.onnx.agreeing import agreed
from maxtool.importers.onnx.attributes import Attributes, as_python, resolved, with_attributes
from maxtool.importers.onnx.following import follow
from maxtool.importers.onnx.function_bodies import body_of, default_attributes, has_body
from maxtool.importers.onnx.graph_inputs import checked, identifier
from maxtool.importers.onnx.initializers import Initializers
from maxtool.importers.onnx.limits import MOST_DEPTH, MOST_NODES
from maxtool.importers.onnx.operator_call import OperatorCall
from maxtool.importers.onnx.operator_table import find_operator
from maxtool.importers.onnx.ordering import in_order
from maxtool.importers.onnx.origins import Origins
from maxtool.importers.onnx.problems import Problems
from maxtool.importers.onnx.protos import FunctionProto, GraphProto, NodeProto
from maxtool.importers.onnx.refusals import MISFITS, RefusedNode, require
from maxtool.importers.onnx.scope import MISSING, MissingOperand, Scope
from maxtool.importers.onnx.size_folds import SIZE_FOLDS
from maxtool.importers.onnx.structure import OnnxModel, domain_of, opsets_of
from maxtool.importers.onnx.survey import named
from maxtool.importers.onnx.values import Sizes, Value, is_known


class NodeRunner:
    """Runs nodes in scopes; those that cannot be taken become problems, and leave no values.

    Attributes:
        limits: The largest sizes that calls may bring, by name.
    """

    def __init__(
        self,
        model: OnnxModel,
        initializers: Initializers,
        problems: Problems,
        origins: Origins,
    ) -> None:
        self._model = model
        self._initializers = initializers
        self._problems = problems
        self._left = MOST_NODES
        self._labels: Counter[str] = Counter()
        self._origins = origins
        self.limits: dict[str, int] = {}

    def run(self, scope: Scope, nodes: Sequence[NodeProto]) -> None:
        """Run nodes, each behind those that it reads, and enter what they give into the scope."""
        for index, node in in_order(nodes):
            name = named(node, scope.opsets.get(domain_of(node.domain), 0), scope.where)
            try:
                results: Sequence[Any] = self._results(scope, node, index)
            except MissingOperand:
                results = [MISSING] * len(node.output)
            except MISFITS as error:
                self._problems.add(name, error)
                results = [MISSING] * len(node.output)
            for output, value in zip(node.output, results, strict=False):
                if output and (output in scope.values or scope.initializer(output) is not None):
                    self._problems.add(name, RefusedNode(f"it gives {output!r} once more"))
                if output:
                    scope.values[output] = value

    def _results(self, scope: Scope, node: NodeProto, index: int) -> Sequence[Value]:
        self._left -= 1
        require(self._left >= 0, f"more than {MOST_NODES} nodes are to be run")
        operands = [self._operand(scope, name) for name in node.input]
        attributes = resolved(node, scope.given)
        domain = domain_of(node.domain)
        version = scope.opsets.get(domain, 0)
        local = self._model.functions.get((domain, node.op_type, node.overload))
        if local is not None:
            return self._call(scope, local, operands, attributes)
        results = self._by_operator(scope, node, index, operands, attributes)
        if results is None:
            require(has_body(domain, node.op_type, version), "the operator is not supported")
            body = body_of(domain, version, with_attributes(node, attributes), operands)
            given = {**default_attributes(domain, node.op_type, version), **attributes}
            results = self._call(scope, body, operands, given)
        used = sum(1 for output in node.output if output)
        require(len(results) >= used or not used, f"it gives {len(results)} values")
        for value in results:
            if isinstance(value, Tensor):
                checked(value.type)
        return results

    def _by_operator(
        self,
        scope: Scope,
        node: NodeProto,
        index: int,
        operands: Sequence[Value],
        given: Attributes,
    ) -> Sequence[Value] | None:
        """The results of an operator of ours; None if there is none."""
        domain = domain_of(node.domain)
        version = scope.opsets.get(domain, 0)
        operator = find_operator(domain, node.op_type, version)
        if operator is None:
            return None
        attributes = as_python(given)
        if not domain:
            operands = agreed(node.op_type, operands, attributes)
        call = OperatorCall(
            node.op_type,
            version,
            operands,
            list(node.input),
            list(node.output),
            attributes,
            partial(self._run_graph, scope, node, index),
            self._new_name,
            self._at_most,
            self._origins,
        )
        sizes = _folded(call)
        if sizes is not None:
            return _listed(sizes)
        results = _listed(operator(call))
        if not domain:
            follow(call, operator, results[0] if results else None)
        return results

    def _operand(self, scope: Scope, name: str) -> Value:
        if not name:
            return None
        try:
            value = scope.find(name)
        except KeyError:
            raise RefusedNode(f"no node before it gives its input {name!r}") from None
        if value is MISSING:
            raise MissingOperand
        return value

    def _call(
        self,
        scope: Scope,
        function: FunctionProto,
        operands: Sequence[Value],
        given: Mapping[str, Any],
    ) -> list[Value]:
        """The results of a function on operands and attributes."""
        require(scope.depth < MOST_DEPTH, f"functions inside each other deeper than {MOST_DEPTH}")
        require(
            len(operands) <= len(function.input), f"it has more than {len(function.input)} inputs"
        )
        defaults = {one.name: one for one in function.attribute_proto}
        inner = Scope(
            {**scope.opsets, **opsets_of(function)},
            where=f" of the function {function.name!r}",
            prefix=f"{function.name}.",
            given={**defaults, **given},
            depth=scope.depth + 1,
        )
        absent: list[Value] = [None] * (len(function.input) - len(operands))
        inner.values |= dict(zip(function.input, [*operands, *absent], strict=True))
        self.run(inner, function.node)
        return [
            self._operand(inner, name) if inner.knows(name) else None for name in function.output
        ]

    def _run_graph(
        self,
        scope: Scope,
        node: NodeProto,
        index: int,
        graph: GraphProto,
        operands: Sequence[Value],
    ) -> list[Value]:
        """The outputs of a graph inside a node, on the values of its inputs."""
        require(scope.depth < MOST_DEPTH, f"graphs inside each other deeper than {MOST_DEPTH}")
        holder = next(one for one in node.attribute if one.g is graph or one.g == graph)
        prefix = f"{scope.prefix}{node.name or f'{node.op_type}_{index}'}.{holder.name}."
        own = {one.name for one in graph.initializer}
        inner = Scope(
            scope.opsets,
            where=f" inside {node.name or node.op_type!r}",
            prefix=prefix,
            given=scope.given,
            outer=scope,
            initializer=lambda name: self._initializers.find(prefix, name) if name in own else None,
            depth=scope.depth + 1,
        )
        require(len(operands) == len(graph.input), f"its graph has {len(graph.input)} inputs")
        inner.values |= dict(zip((one.name for one in graph.input), operands, strict=True))
        self.run(inner, graph.node)
        return [self._operand(inner, one.name) for one in graph.output]

    def _at_most(self, name: str, size: int) -> None:
        self.limits[name] = min(size, self.limits.get(name, size))

    def _new_name(self, label: str) -> str:
        plain = identifier(label)
        self._labels[plain] += 1
        return f"{plain}_{self._labels[plain]}"


def _folded(call: OperatorCall) -> Value:
    """The result as sizes, if an operand is sizes and the others are known."""
    fold = SIZE_FOLDS.get(call.op_type)
    named = any(isinstance(value, Sizes) for value in call.operands)
    if fold is None or not named:
        return None
    if not all(isinstance(one, Sizes) or one is None or is_known(one) for one in call.operands):
        return None
    return fold(call)


def _listed(results: Any) -> Sequence[Value]:  # noqa: ANN401 - one value or several
    return list(results) if isinstance(results, list | tuple) else [results]
