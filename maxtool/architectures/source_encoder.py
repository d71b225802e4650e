"""An encoder of a text, which a decoder reads on from."""

from __future__ import annotations

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.encoder_attention import EncoderAttention
from maxtool.architectures.entry import Table
from maxtool.architectures.head_options import head_options
from maxtool.architectures.mlp import MLPS, scaled
from maxtool.architectures.normalization import applied, stream_norm
from maxtool.architectures.position_vectors import POSITIONS
from maxtool.architectures.relative_positions import RelativeBias, RelativePositions, biases_of
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Embedding, Module, ModuleList


class SourceLayer(Module[[Tensor, Tensor | None], Tensor]):
    """Attention of every token to every other, and an MLP; norms before or behind them."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.attn = EncoderAttention(**head_options(config), dtype=dtype)
        self.attn_norm = stream_norm(config)
        self.mlp = MLPS[config.mlp](hidden, inner, config.hidden_act, dtype, config.mlp_bias)
        self.mlp_norm = stream_norm(config)
        self.is_before = config.block == "pre"

    def forward(self, x: Tensor, biases: Tensor | None) -> Tensor:
        """Map ``[batch, seq, hidden]`` to its shape; ``biases`` are added to scores."""
        if self.is_before:
            x = x + self.attn(self.attn_norm(x), biases, None)
            return x + self.mlp(self.mlp_norm(x), None)
        x = self.attn_norm(x + self.attn(x, biases, None))
        return self.mlp_norm(x + self.mlp(x, None))


class SourceEncoder(Module[[Tensor], Tensor]):
    """A bidirectional transformer over the tokens of one text, or of texts of one length.

    Args:
        config: The options, as those of a decoder of such layers.
        dtype: The element type of the matrices.
        context: Positions it is built for.
    """

    def __init__(self, config: DecoderConfig, dtype: DType, context: int) -> None:
        hidden, self.scale = config.hidden_size, config.embed_scale
        self.embed = Embedding(config.vocab_size, hidden, dtype)
        learned = POSITIONS.get(config.position)
        self.position = None if learned is None else learned(config, context, dtype)
        self.embed_norm = stream_norm(config) if config.embed_norm else None
        self.relative = ModuleList(RelativeBias(config) for _ in range(config.relative_tables))
        self.distances = RelativePositions("encoder.relative", context, config, causal=False)
        self.layers = ModuleList(SourceLayer(config, dtype) for _ in range(config.n_layers))
        self.norm = stream_norm(config) if config.final_norm else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The buckets of relative positions."""
        return (self.distances.table,)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map tokens ``[batch, seq]`` to ``[batch, seq, hidden]``."""
        first, length = Tensor([0], DType.int32, input_ids.device), input_ids.shape[1]
        x = scaled(self.embed(input_ids), self.scale)
        if self.position is not None:
            x = self.position(x, first)
        x = applied(self.embed_norm, x)
        places = first, length, length
        biases = biases_of(self.relative, self.distances, places, len(self.layers))
        for layer, own in zip(self.layers, biases, strict=True):
            x = layer(x, own)
        return applied(self.norm, x)
