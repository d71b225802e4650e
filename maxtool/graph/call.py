"""What a call of a subgraph must fit, and which weights it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from maxtool.graph.sharding import Part
from maxtool.graph.tensor import Tensor
from maxtool.graph.weight import Family, Weight

if TYPE_CHECKING:
    from maxtool.graph.graph import Graph


def check_call(graph: Graph, subgraph: Graph, inputs: Sequence[Tensor], prefix: str) -> None:
    """Refuse a call that does not fit.

    Args:
        graph: The graph that calls.
        subgraph: The one that is called.
        inputs: The operands.
        prefix: Put before the name of each placeholder weight.

    Raises:
        ValueError: If an operand is not of the type of its input, ``graph`` has another subgraph of
            the name, or it cannot be told whose weights are meant.
    """
    _check_operands(subgraph, inputs)
    if graph.subgraphs.get(subgraph.name, subgraph) is not subgraph:
        raise ValueError(f"graph {graph.name!r} has another subgraph named {subgraph.name!r}")
    if subgraph.placeholders and not prefix:
        raise ValueError(f"subgraph {subgraph.name!r} has weights: a call needs their prefix")
    if prefix and subgraph.weight_values and subgraph.weight_prefix is None:
        raise ValueError(
            f"subgraph {subgraph.name!r} was built without a weight_prefix: with prefix"
            f" {prefix!r} too it would use the weights {', '.join(subgraph.weight_values)}"
        )


def _check_operands(subgraph: Graph, inputs: Sequence[Tensor]) -> None:
    if len(inputs) != len(subgraph.inputs):
        raise ValueError(
            f"subgraph {subgraph.name!r} takes {len(subgraph.inputs)} operands, not {len(inputs)}"
        )
    for index, (operand, parameter) in enumerate(zip(inputs, subgraph.inputs, strict=True)):
        differs = (operand.dtype, operand.shape, operand.device) != (
            parameter.dtype,
            parameter.shape,
            parameter.device,
        )
        if differs or type(operand.type) is not type(parameter.type):
            raise ValueError(
                f"operand {index} of subgraph {subgraph.name!r} is {operand.type},"
                f" expected {parameter.type}"
            )


def parts_at(subgraph: Graph, prefix: str) -> dict[str, Part]:
    """The parts of weights that a subgraph uses, by the names that a call gives them."""
    return {
        _meant(name, subgraph, prefix): replace(part, whole=_meant(part.whole, subgraph, prefix))
        for name, part in subgraph.parts.items()
    }


def weights_at(
    subgraph: Graph, prefix: str, families: dict[Family, Mapping[str, Weight]]
) -> dict[str, Weight]:
    """The weights that a call reads, by name.

    A weight of that name is found among those that were named together with the one that the
    subgraph was traced with. Where there is none, that one stands in for it: it is declared alike.

    Args:
        subgraph: The one that is called.
        prefix: Put before the name of each placeholder weight.
        families: Those that were looked at so far; to do so is a walk over a tree of modules.
    """
    found = {}
    for traced, weight in {**subgraph.borrowed, **subgraph.owners}.items():
        if weight.family not in families:
            families[weight.family] = weight.family()
        name = _meant(traced, subgraph, prefix)
        relative = weight.relative(name, families[weight.family])
        found[name] = weight if relative is None else relative
    return found


def _meant(name: str, subgraph: Graph, prefix: str) -> str:
    """The name of a weight in a call, from the one that the subgraph was traced with."""
    own = subgraph.weight_prefix
    if own is None or not name.startswith(own):
        return name
    return prefix + name.removeprefix(own)
