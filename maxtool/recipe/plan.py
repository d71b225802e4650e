"""Plans: every parameter bound to a checkpoint's tensors, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from maxtool import errors
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe.bind import BoundRule
from maxtool.recipe.layer_ranges import folded
from maxtool.recipe.schema import Dialect, Recipe
from maxtool.recipe.step import Array, Shape
from maxtool.weights import Checkpoint, TensorInfo, WeightData
from maxtool.weights.weight_elements import equal_bits

# The error where nothing else is wrong.
ERRORS: Mapping[str, type[errors.ModelMismatch]] = {
    "not supported": errors.ConfigurationError,
    "missing": errors.MissingWeight,
    "wrong": errors.MisshapenWeight,
    "not used": errors.UnexpectedWeight,
    "contradictory": errors.ModelMismatch,
}


def shown(misfits: Mapping[str, list[str]]) -> list[str]:
    """A line for each misfit, those of many layers as one."""
    return [f"{what}: {line}" for what, lines in misfits.items() for line in folded(lines)]


@dataclass(frozen=True)
class Binding:
    """A parameter and the tensors it is made from.

    Type and encoding are those of what :meth:`Plan.read` gives; the latter where rows pass packed.
    """

    parameter: str
    shape: Shape
    dtype: DType
    encoding: QuantizationEncoding | None
    sources: tuple[TensorInfo, ...]
    rule: BoundRule


@dataclass
class Plan:
    """A checkpoint matched with a recipe."""

    recipe: Recipe
    checkpoint: Checkpoint
    dialect: Dialect
    config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]  # the checkpoint's, by the names that the recipe has
    notes: list[str] = field(default_factory=list)
    parameters: dict[str, Binding] = field(default_factory=dict)  # in the module's order
    missing: list[str] = field(default_factory=list)  # parameters, with the tensor's name
    unused: list[str] = field(default_factory=list)  # tensors, with the reason
    misshapen: list[str] = field(default_factory=list)  # tensors of another shape or type
    refused: list[str] = field(default_factory=list)  # tensors that say the model is unsupported
    dropped: list[str] = field(default_factory=list)  # tensors that are not needed to run
    duplicates: dict[str, str] = field(default_factory=dict)  # to what they must equal, being tied
    claimed: set[str] = field(default_factory=set)  # asked for by parameters, fitting or not
    context: int | None = None  # the architecture's positions; None where it has no sequences

    def check(self) -> None:
        """Raise one error that lists everything that does not fit, if anything does not.

        Tensors that have to be equal are read and compared; all else is known from headers. It is
        a ModelMismatch, or the class of it that fits where all problems are of one kind.
        """
        misfits = {**self.misfits(), "contradictory": list(self._unequal())}
        wrong = {what: lines for what, lines in misfits.items() if lines}
        if wrong:
            error = ERRORS[next(iter(wrong))] if len(wrong) == 1 else errors.ModelMismatch
            what = f"the tensors do not fit the recipe {self.recipe.name}"
            raise error(what, file=self.checkpoint.path, problems=shown(wrong))

    def misfits(self) -> dict[str, list[str]]:
        """Lines on all that does not fit, as far as headers tell, by what is said of it."""
        return {
            "not supported": self.refused,
            "missing": self.missing,
            "wrong": self.misshapen,
            "not used": self.unused,
        }

    def read(self, parameter: str) -> WeightData:
        """A parameter's data of the stored element type, its rule applied.

        Block-quantized rows stay packed when the rule only moves whole rows; otherwise they are
        dequantized to float32.
        """
        binding = self.parameters.get(parameter)
        if binding is None:
            raise errors.MissingWeight("the parameter is not bound to a tensor", tensor=parameter)
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
