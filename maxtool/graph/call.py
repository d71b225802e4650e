"""Calls of subgraphs: their operands, and the weights that they mean by the names of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from maxtool.graph.sharding import WeightPart
from maxtool.graph.tensor import Tensor
from maxtool.graph.weight import Family, Weight


def check_operands(name: str, operands: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
    """Refuse operands that are not of the number and the types of a subgraph's inputs."""
    if len(operands) != len(parameters):
        raise ValueError(f"subgraph {name!r} takes {len(parameters)} operands, not {len(operands)}")
    for index, (operand, parameter) in enumerate(zip(operands, parameters, strict=True)):
        if operand.type != parameter.type:
            raise ValueError(
                f"operand {index} of subgraph {name!r} is {operand.type}, expected {parameter.type}"
            )


@dataclass(frozen=True)
class Renaming:
    """Map the names of a subgraph's weights, some with the prefix ``own``, to those in a call."""

    own: str | None
    prefix: str

    def check(self, subgraph: str, placeholders: Iterable[str], weights: Iterable[str]) -> None:
        """Refuse a call from which nobody can tell whose weights are meant.

        ``placeholders`` are the rest of the names of the weights that have its own prefix, and
        ``weights`` the names of the others.
        """
        if not self.prefix and any(placeholders):
            raise ValueError(f"subgraph {subgraph!r} has weights: a call needs their prefix")
        if self.prefix and self.own is None and (names := ", ".join(weights)):
            raise ValueError(
                f"subgraph {subgraph!r} was built without a weight_prefix: with prefix"
                f" {self.prefix!r} too it would use the weights {names}"
            )

    def name(self, traced: str) -> str:
        """The name of a weight in the call."""
        if self.own is None or not traced.startswith(self.own):
            return traced
        return self.prefix + traced.removeprefix(self.own)

    def parts(self, parts: Mapping[str, WeightPart]) -> dict[str, WeightPart]:
        """The parts of weights that the subgraph uses, by their names in the call."""
        return {
            self.name(name): replace(part, whole=self.name(part.whole))
            for name, part in parts.items()
        }

    def weights(
        self, weights: Mapping[str, Weight], families: dict[Family, Mapping[str, Weight]]
    ) -> dict[str, Weight]:
        """The weights that the call reads, by name; ``weights`` are those of the tracing.

        A weight of that name is found among those that were named together with the one that the
        subgraph was traced with. Where there is none, that one stands in for it: it is declared
        alike. ``families`` keeps what was looked at so far: each is a walk over a tree of modules.
        """
        renamed = {}
        for traced, weight in weights.items():
            if weight.family not in families:
                families[weight.family] = weight.family()
            name = self.name(traced)
            relative = weight.relative(name, families[weight.family])
            renamed[name] = weight if relative is None else relative
        return renamed
