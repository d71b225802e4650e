"""Problems of a model, collected so that all of them are told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from maxtool.errors import ModelMismatch
from maxtool.importers.onnx.refusals import RefusedNode, UnknownValues

MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class NodeName:
    """A node as messages name it.

    Attributes:
        label: Its name, or what it gives where it has none.
        operator: Its operator with the domain.
        version: The version of that domain.
        where: The function or inner graph that it is in, if it is in one.
    """

    label: str
    operator: str
    version: int
    where: str = ""

    def __str__(self) -> str:
        return f"{self.label!r}{self.where}"


@dataclass
class Problems:
    """Reasons why a model cannot be taken, with the nodes; equal ones are counted together."""

    nodes: dict[tuple[str, int, str], list[NodeName]] = field(default_factory=dict)
    unknown: list[tuple[NodeName, UnknownValues]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def add(self, node: NodeName, error: RefusedNode | Exception) -> None:
        """Remember why a node cannot be taken."""
        if isinstance(error, UnknownValues):
            self.unknown.append((node, error))
            return
        key = (node.operator, node.version, str(error))
        self.nodes.setdefault(key, []).append(node)

    def listed(self) -> list[str]:
        """A line for each reason, with the operator, the opset, how many nodes, and the first."""
        lines = [*self.lines]
        for (operator, version, why), nodes in self.nodes.items():
            count = f"{len(nodes)} nodes, the first" if len(nodes) > 1 else "node"
            lines.append(f"{operator} (opset {version}), {count} {nodes[0]}: {why}")
        if len(lines) > MOST_LISTED:
            lines[MOST_LISTED:] = [f"and {len(lines) - MOST_LISTED} more"]
        return lines

    def check(self, file: str, deciding: Mapping[int, Sequence[str]]) -> None:
        """Raise one error that lists everything, if there is anything.

        Args:
            file: The model's file.
            deciding: By the identity of an unknown value, the inputs that it is computed from.
        """
        asked: dict[str, NodeName] = {}
        lines = self.listed()
        for node, error in self.unknown:
            names = [name for one in error.tensors for name in deciding.get(id(one), ())]
            if not names:
                lines.append(f"{node.operator} (opset {node.version}), node {node}: {error}")
            for name in names:
                asked.setdefault(name, node)
        if not lines and not asked:
            return
        lines += [
            f"input {name!r}: {node.operator} (opset {node.version}), node {node},"
            " needs its elements to know a shape"
            for name, node in asked.items()
        ]
        hint = f"--fix {next(iter(asked))}=VALUE makes an input a constant" if asked else None
        error_type = UnfixedInputs if asked and len(lines) == len(asked) else ModelMismatch
        found = error_type("the graph cannot be compiled", file=file, problems=lines, hint=hint)
        if isinstance(found, UnfixedInputs):
            found.names = tuple(asked)
        raise found


class UnfixedInputs(ModelMismatch):
    """Inputs whose elements decide shapes have no fixed values.

    Attributes:
        names: The inputs.
    """

    names: tuple[str, ...] = ()
