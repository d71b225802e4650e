"""Embeddings of tokens for each layer, beside those that the first layer reads (Gemma 3n)."""

from __future__ import annotations

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.mlp import scaled
from maxtool.architectures.normalization import stream_norm
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Embedding, Linear, Module, RMSNorm


class LayerEmbeddings(Module[[Tensor, Tensor], Tensor]):
    """A vector for each token and layer: one that is looked up, and a share of its embedding."""

    def __init__(self, config: DecoderConfig, width: int, dtype: DType) -> None:
        self.rows = config.layer_embed_rows or config.vocab_size
        self.is_short = self.rows < config.vocab_size
        self.layers, self.width = config.n_layers, width
        self.embed = Embedding(self.rows, self.layers * width, dtype)
        self.project = Linear(config.hidden_size, self.layers * width, dtype)
        self.norm = RMSNorm(width, config.norm_eps)
        self.scale = config.hidden_size**-0.5

    def forward(self, input_ids: Tensor, x: Tensor) -> Tensor:
        """``[batch, seq, layers, width]`` of tokens, and of what the first layer reads of them."""
        by_layer = [*input_ids.shape, self.layers, self.width]
        ids = input_ids
        if self.is_short:
            ids = ops.where(ops.less(ids, self.rows), ids, 0)
        own = scaled(self.embed(ids), self.width**0.5).reshape(by_layer)
        shared = self.norm(scaled(self.project(x), self.scale).reshape(by_layer))
        return scaled(shared + own, 0.5**0.5)


class LayerInput(Module[[Tensor, Tensor], Tensor]):
    """A layer's use of the vector that a token has for it: ``norm(up(act(gate(x)) * own))``."""

    def __init__(self, config: DecoderConfig, width: int, dtype: DType) -> None:
        self.gate = Linear(config.hidden_size, width, dtype)
        self.up = Linear(width, config.hidden_size, dtype)
        self.norm = stream_norm(config)
        self.activation = config.hidden_act

    def forward(self, x: Tensor, own: Tensor) -> Tensor:
        """Map ``x [batch, seq, hidden]`` to the same shape, by ``own [batch, seq, width]``."""
        return self.norm(self.up(ACTIVATIONS[self.activation](self.gate(x)) * own))
