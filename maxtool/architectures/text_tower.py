"""A tower of texts: what reads them in a model of images and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from maxtool.architectures.pooling import of_length_1
from maxtool.architectures.pre_norm_layer import LayerSizes, PreNormLayer
from maxtool.architectures.token_masks import shown
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Embedding, LayerNorm, Linear, Module, ModuleList

# An end of texts by this id stands for the largest id of a text: transformers reads it so, as the
# configurations of the first checkpoints of CLIP name a token that no text has.
LARGEST_ID = 2


@dataclass(frozen=True, slots=True)
class TextTowerSizes:
    """Sizes and options of a tower of texts."""

    vocab_size: int
    context_length: int
    n_layers: int
    layer: LayerSizes
    pooling: str  # of TOWER_POOLINGS
    eos_token_id: int | None
    projection_size: int
    projection_bias: bool
    normalize: bool


def first_end(ids: Tensor, eos_token_id: int | None) -> Tensor:
    """Choose the first token of each text that ends it: bool ``[batch, seq]``.

    It is the first token of all where none does.
    """
    if eos_token_id == LARGEST_ID:
        wide = ids.cast(DType.float32)  # whole numbers up to 2^24 are floats
        found = ops.equal(wide, ops.max(wide, axis=1)).cast(DType.int64)
    else:
        found = ops.equal(ids, eos_token_id or 0).cast(DType.int64)
    place = ops.argmax(found, axis=1)
    return ops.equal(_places(ids), place)


def last_place(ids: Tensor, eos_token_id: int | None) -> Tensor:  # noqa: ARG001 - as first_end
    """Choose the last place of each text, be there a token or padding: bool ``[batch, seq]``."""
    places = _places(ids)
    return ops.equal(places, ops.max(places, axis=1))


def _places(ids: Tensor) -> Tensor:
    """The number of each place: ``[1, seq]``."""
    seq = ids.shape[1]
    return ops.range(0, seq, dtype=DType.int64, device=ids.device).reshape([1, seq])


TOWER_POOLINGS: Mapping[str, Callable[[Tensor, int | None], Tensor]] = {
    "eos": first_end,
    "last": last_place,
}


class TextTower(Module[[Tensor, Tensor], Tensor]):
    """A transformer over tokens, and a projection of the vector of one of them."""

    def __init__(self, sizes: TextTowerSizes, dtype: DType) -> None:
        self.sizes, hidden = sizes, sizes.layer.hidden_size
        self.embed = Embedding(sizes.vocab_size, hidden, dtype)
        self.position = Embedding(sizes.context_length, hidden, dtype)
        self.layers = ModuleList(PreNormLayer(sizes.layer, dtype) for _ in range(sizes.n_layers))
        self.norm = LayerNorm(hidden, eps=sizes.layer.norm_eps)
        self.projection = Linear(
            hidden, sizes.projection_size, dtype, has_bias=sizes.projection_bias
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The vector of each token, ``[batch, seq, hidden]``.

        Both arguments are ``[batch, seq]``; the mask is 1 for a token and 0 for padding.
        """
        x = self.embed(input_ids) + self.position(_places(input_ids))
        mask = shown(attention_mask)
        for layer in self.layers:
            x = layer(x, mask, None)
        return self.norm(x)

    def vector(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector for each text, ``[batch, projection_size]``."""
        x, sizes = self.forward(input_ids, attention_mask), self.sizes
        batch, seq, hidden = x.shape
        chosen = TOWER_POOLINGS[sizes.pooling](input_ids, sizes.eos_token_id)
        weights = chosen.cast(x.dtype).reshape([chosen.shape[0], seq, 1])
        vector = self.projection(ops.sum(x * weights, axis=1).reshape([batch, hidden]))
        return of_length_1(vector) if sizes.normalize else vector
