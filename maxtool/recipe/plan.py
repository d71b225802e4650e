"""Plans: every parameter bound to a checkpoint's tensors, from headers alone.

All that does not fit is gathered: parameters without a tensor, tensors without a use, shapes and
types that differ, tensors that say the model is of an unsupported kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from maxtool.dtype import DType
from maxtool.errors import (
    ConfigurationError,
    MisshapenWeight,
    MissingWeight,
    ModelMismatch,
    UnexpectedWeight,
)
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe.bind import BoundRule
from maxtool.recipe.layer_ranges import folded
from maxtool.recipe.schema import Dialect, Recipe
from maxtool.recipe.step import Array, Shape
from maxtool.weights import Checkpoint, TensorInfo, WeightData
from maxtool.weights.weight_elements import equal_bits


@dataclass(frozen=True)
class Binding:
    """A parameter and the tensors it is made from.

    Attributes:
        parameter: Its name in the module.
        shape: Its shape.
        dtype: Element type of what :meth:`Plan.read` gives.
        encoding: Block encoding of what :meth:`Plan.read` gives, when rows pass through packed.
        sources: The tensors in the file.
        rule: What is done to them.
    """

    parameter: str
    shape: Shape
    dtype: DType
    encoding: QuantizationEncoding | None
    sources: tuple[TensorInfo, ...]
    rule: BoundRule


@dataclass
class Plan:
    """A checkpoint matched with a recipe.

    Attributes:
        recipe: The recipe.
        checkpoint: Where the tensors are.
        dialect: How the checkpoint names them.
        config: The configuration's fields.
        tensors: The checkpoint's tensors, by the names that the recipe has for them.
        notes: What was seen and passed over.
        parameters: Parameter to binding, in the module's order.
        missing: Parameters without a tensor, with the tensor's name.
        unused: Tensors that nothing uses, with the reason.
        misshapen: Tensors of another shape or type than is needed.
        refused: Tensors that say the model is of an unsupported kind, with the reason.
        dropped: Tensors that are not needed to run.
        duplicates: Tensor to the tensor it must equal, because their parameters are tied.
        claimed: Tensors that a parameter asked for, whether they fit or not.
        context: Positions that the architecture is for; None where it is for no sequences.
    """

    recipe: Recipe
    checkpoint: Checkpoint
    dialect: Dialect
    config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]
    notes: list[str] = field(default_factory=list)
    parameters: dict[str, Binding] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    duplicates: dict[str, str] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    context: int | None = None

    def check(self) -> None:
        """Raise one error that lists everything that does not fit, if anything does not.

        Tensors that have to be equal are read and compared; all else is known from headers. It is
        a ModelMismatch, or the class of it that fits where all problems are of one kind.
        """
        kinds: list[tuple[type[ModelMismatch], str, list[str]]] = [
            (ConfigurationError, "not supported", self.refused),
            (MissingWeight, "missing", self.missing),
            (MisshapenWeight, "wrong", self.misshapen),
            (UnexpectedWeight, "not used", self.unused),
            (ModelMismatch, "contradictory", list(self._unequal())),
        ]
        wrong = [kind for kind in kinds if kind[2]]
        if not wrong:
            return
        error = wrong[0][0] if len(wrong) == 1 else ModelMismatch
        raise error(
            f"the tensors do not fit the recipe {self.recipe.name}",
            file=self.checkpoint.path,
            problems=[f"{name}: {line}" for _, name, found in wrong for line in folded(found)],
        )

    def read(self, parameter: str) -> WeightData:
        """A parameter's data of the stored element type, its rule applied.

        Block-quantized rows stay packed when the rule only moves whole rows; otherwise they are
        dequantized to float32.
        """
        binding = self.parameters.get(parameter)
        if binding is None:
            raise MissingWeight("the parameter is not bound to a tensor", tensor=parameter)
        arrays = [self._source(source, binding) for source in binding.sources]
        return WeightData(
            data=binding.rule.apply(arrays),
            name=parameter,
            dtype=binding.dtype,
            shape=binding.shape,
            quantization_encoding=binding.encoding,
        )

    def is_exact(self, parameter: str) -> bool:
        """Return whether writing a parameter by its rule again gives every bit read."""
        binding = self.parameters[parameter]
        if binding.encoding is not None or not binding.rule.may_round:
            return True
        arrays = [self._source(source, binding) for source in binding.sources]
        return binding.rule.is_exact(arrays)

    def _source(self, source: TensorInfo, binding: Binding) -> Array:
        data = self.checkpoint.read(source.name)
        if binding.encoding is not None:
            return data.data
        types = {info.dtype for info in binding.sources}
        if source.encoding is not None or len(types) > 1:
            return data.astype(DType.float32).data
        return data.data

    def _unequal(self) -> Iterator[str]:
        """The tensors that differ from those they are tied to: frameworks take one or the other."""
        for duplicate, original in self.duplicates.items():
            if not self._equal(duplicate, original):
                yield (
                    f"{duplicate} differs from {original}, to which the configuration ties it: set "
                    "tie_word_embeddings to false in a copy of config.json to use both"
                )

    def _equal(self, left: str, right: str) -> bool:
        one, two = self.checkpoint.stored(left), self.checkpoint.stored(right)
        kinds = (one.dtype, one.quantization_encoding), (two.dtype, two.quantization_encoding)
        wide = None if kinds[0] == kinds[1] else DType.float32
        return one.shape == two.shape and equal_bits(one, two, wide)
