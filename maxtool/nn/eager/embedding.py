"""A table of vectors, or of tensors, looked up by number."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import Dim, DimLike, ShapeLike, Tensor, TensorType, ops, random
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class Embedding(Module[[Tensor], Tensor]):
    """A table looked up by whole numbers.

    Args:
        vocab_size: How many entries there are.
        dim: The width of an entry, where that is a vector.
        dims: The shape of an entry. One of the two is given.

    Raises:
        TypeError: If both are given, or none.

    Attributes:
        weight: ``[vocab_size, *dims]``, drawn from the standard normal distribution.
    """

    weight: Tensor

    def __init__(
        self, vocab_size: DimLike, *, dim: DimLike | None = None, dims: ShapeLike | None = None
    ) -> None:
        if (dim is None) == (dims is None):
            raise TypeError("an Embedding takes one of dim and dims")
        shape = [dim] if dim is not None else dims or []
        self.weight = random.normal([vocab_size, *shape])

    @property
    def vocab_size(self) -> Dim:
        """Number of entries."""
        return self.weight.shape[0]

    @property
    def dim(self) -> Dim:
        """The width of an entry.

        Raises:
            TypeError: If an entry is no vector.
        """
        if len(self.dims) != 1:
            raise TypeError(f"the entries have {len(self.dims)} dimensions, not one: see dims")
        return self.dims[0]

    @property
    def dims(self) -> Sequence[Dim]:
        """The shape of an entry."""
        return list(self.weight.shape[1:])

    def forward(self, indices: Tensor) -> Tensor:
        """Look up whole numbers ``[...]``; returns ``[..., *dims]`` of the table's type.

        Raises:
            IndexError: If a number that is known now is not in the table.
        """
        entries = ops.embedding(indices, self.weight)
        same = entries.dtype is self.weight.dtype
        return entries if same else ops.cast(entries, self.weight.dtype)

    def input_types(self) -> list[TensorType]:
        """A batch of sequences of numbers."""
        return [TensorType(DType.int64, ["batch", "seq"], self.device)]

    def __rich_repr__(self) -> Parts:
        yield "vocab_size", self.vocab_size
        yield ("dim", self.dim) if len(self.dims) == 1 else ("dims", self.dims)
