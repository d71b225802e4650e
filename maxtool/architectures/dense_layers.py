"""Layers behind the pooling, by which vectors of texts get another width."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Protocol

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Linear, ModuleList

IDENTITY = "identity"
DENSE_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    **{name: ACTIVATIONS[name] for name in ("relu", "gelu", "silu", "tanh", "sigmoid")},
    IDENTITY: ACTIVATIONS["linear"],
}
# The options, of each of which there is one value for each layer.
OPTIONS = ("dense_features", "dense_biases", "dense_activations")


class DenseOptions(Protocol):
    """The options of such layers; all are None where there is none."""

    @property
    def hidden_size(self) -> int:
        """The width of the vectors that they are given."""

    @property
    def dense_features(self) -> tuple[int, ...] | None:
        """The width of what each gives."""

    @property
    def dense_biases(self) -> tuple[bool, ...] | None:
        """The presence of a bias in each."""

    @property
    def dense_activations(self) -> tuple[str, ...] | None:
        """The activation of each."""


class DenseLayers(ModuleList[Linear]):
    """The layers, one after the other, each with its activation behind it."""

    def __init__(self, config: DenseOptions, dtype: DType) -> None:
        widths = (config.hidden_size, *(config.dense_features or ()))
        biases = config.dense_biases or ()
        super().__init__(
            Linear(inner, outer, dtype, has_bias=has_bias)
            for (inner, outer), has_bias in zip(pairwise(widths), biases, strict=True)
        )
        self.activations = config.dense_activations or ()

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to ``[..., features]`` of the last layer."""
        for layer, activation in zip(self, self.activations, strict=True):
            x = DENSE_ACTIVATIONS[activation](layer(x))
        return x


def dense_problems(config: DenseOptions) -> Iterator[str]:
    """Yield what is wrong with the options, a line each."""
    counts = {name: len(getattr(config, name) or ()) for name in OPTIONS}
    if len({*counts.values()}) > 1:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        yield f"each layer behind the pooling needs one of all: there are {said}"
    for activation in config.dense_activations or ():
        if activation not in DENSE_ACTIVATIONS:
            known = ", ".join(DENSE_ACTIVATIONS)
            yield f"dense_activations {activation!r}: supported are {known}"
    if min(config.dense_features or (1,)) < 1:
        yield "dense_features: each is at least 1"
