"""The decoder-only transformer: one class whose options are the differences between models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from maxtool.architectures.config import typed
from maxtool.architectures.entry import Entry, Limit
from maxtool.architectures.rotary import RotaryTable
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import BufferType, Tensor, TensorType, ops
from maxtool.nn import Embedding, Linear, Module, ModuleList, RMSNorm

Cache: TypeAlias = tuple[Tensor, Tensor]
# Hidden state, cosines, sines, position and cache, to the hidden state and the written cache.
CachedModule: TypeAlias = Module[
    [Tensor, Tensor, Tensor, Tensor, Cache | None], tuple[Tensor, Cache | None]
]

ACTIVATIONS = {"silu": ops.silu}
ROPE_SCALINGS = ("none", "linear")
MAX_POSITIONS = 2**31 - 1  # a position is an int32


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The options of a decoder. Widths are in elements.

    Attributes:
        vocab_size: Rows of the embedding and of the head.
        hidden_size: Width of the residual stream.
        intermediate_size: Width inside the gated MLP.
        n_layers: How many layers there are.
        n_heads: Query heads.
        n_kv_heads: Key/value heads, of which ``n_heads`` is a multiple.
        head_dim: Width of a head, even.
        norm_eps: Added to the mean of squares in each norm.
        rope_theta: The base of the rotary frequencies.
        rope_scaling: ``none``, or ``linear``: positions are divided by ``rope_factor``.
        rope_factor: See there.
        context_length: Positions the model was trained for.
        tie_word_embeddings: Whether the head is the embedding.
        hidden_act: The gate's activation.
        attention_bias: Whether the four attention projections have biases.
        mlp_bias: Whether the three projections of the MLP have biases.
        sliding_window: How many keys a query sees at most, its own included; None for all.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    context_length: int
    rope_scaling: str = "none"
    rope_factor: float = 1.0
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None

    def problems(self) -> list[str]:
        """What is wrong with the values, a line each."""
        positive = (
            "vocab_size hidden_size intermediate_size n_layers n_heads n_kv_heads head_dim"
            " rope_theta rope_factor context_length sliding_window"
        )
        values = {name: getattr(self, name) for name in positive.split()}
        found = [
            f"{name} is {value}"
            for name, value in values.items()
            if value is not None and not 0 < value < inf
        ]
        if self.context_length > MAX_POSITIONS:
            found.append(f"context_length is {self.context_length}, above {MAX_POSITIONS}")
        if not 0 <= self.norm_eps < inf:
            found.append(f"norm_eps is {self.norm_eps}")
        if not found and self.n_heads % self.n_kv_heads:
            found.append(f"n_heads {self.n_heads} is no multiple of n_kv_heads {self.n_kv_heads}")
        if self.head_dim % 2:
            found.append(f"head_dim {self.head_dim} is odd")
        if self.hidden_act not in ACTIVATIONS:
            found.append(f"hidden_act {self.hidden_act!r}: supported are {', '.join(ACTIVATIONS)}")
        if self.rope_scaling not in ROPE_SCALINGS:
            found.append(
                f"rope_scaling {self.rope_scaling!r}: supported are {', '.join(ROPE_SCALINGS)}"
            )
        return found


class Attention(CachedModule):
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        hidden, dim, bias = config.hidden_size, config.head_dim, config.attention_bias
        self.q = Linear(hidden, config.n_heads * dim, dtype, has_bias=bias)
        self.k = Linear(hidden, config.n_kv_heads * dim, dtype, has_bias=bias)
        self.v = Linear(hidden, config.n_kv_heads * dim, dtype, has_bias=bias)
        self.o = Linear(config.n_heads * dim, hidden, dtype, has_bias=bias)
        self.head_dim = dim
        self.window = config.sliding_window

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, position: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """From ``[batch, seq, hidden]`` to the same shape, and the cache with the new keys."""
        query = ops.rope(self._heads(self.q(x)), cos, sin, position)
        key = ops.rope(self._heads(self.k(x)), cos, sin, position)
        value = self._heads(self.v(x))
        if cache is None:
            keys, values = key.permute([0, 2, 3, 1]), value.permute([0, 2, 1, 3])
        else:
            keys = ops.cache_write_key(cache[0], key, position)
            values = ops.cache_write_value(cache[1], value, position)
            cache = (keys, values)
        mixed = ops.attention(
            query, keys, values, position, scale=self.head_dim**-0.5, window=self.window
        )
        width = int(query.shape[2]) * self.head_dim
        return self.o(mixed.reshape([*x.shape[:2], width])), cache

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape([*x.shape[:2], int(x.shape[2]) // self.head_dim, self.head_dim])


class GatedMLP(Module[[Tensor], Tensor]):
    """``down(activation(gate(x)) * up(x))``."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate = Linear(hidden, inner, dtype, has_bias=bias)
        self.up = Linear(hidden, inner, dtype, has_bias=bias)
        self.down = Linear(inner, hidden, dtype, has_bias=bias)
        self.activation = config.hidden_act

    def forward(self, x: Tensor) -> Tensor:
        """From ``[..., hidden]`` to the same shape."""
        return self.down(ACTIVATIONS[self.activation](self.gate(x)) * self.up(x))


class DecoderLayer(CachedModule):
    """Attention and MLP, each on a normalised input and added to the residual stream."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        self.attn_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attn = Attention(config, dtype)
        self.mlp_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = GatedMLP(config, dtype)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, position: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Cache | None]:
        """From ``[batch, seq, hidden]`` to the same shape, and the cache with the new keys."""
        mixed, cache = self.attn(self.attn_norm(x), cos, sin, position, cache)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x)), cache


class Decoder(Module[[Tensor], Tensor]):
    """A decoder-only language model.

    Args:
        config: Its options.
        dtype: The element type of the matrices. Norms and biases, and everything computed, are
            float32.
        context: Positions it is built for; those it was trained for when absent.
    """

    def __init__(
        self, config: DecoderConfig, dtype: DType = DType.float32, context: int | None = None
    ) -> None:
        self.config = config
        self.context = context or config.context_length
        self.embed = Embedding(config.vocab_size, config.hidden_size, dtype)
        self.layers = ModuleList(DecoderLayer(config, dtype) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.lm_head = Linear(config.hidden_size, config.vocab_size, dtype)
        if config.tie_word_embeddings:
            self.lm_head.set_shared_weight("weight", self.embed.weight)
        factor = config.rope_factor if config.rope_scaling == "linear" else 1.0
        self.rotary = RotaryTable(config.head_dim, self.context, config.rope_theta, factor)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits at every position, without a cache.

        Args:
            input_ids: int64 ``[batch, seq]``, at most ``context`` long.

        Returns:
            float32 ``[batch, seq, vocab]``.
        """
        return self.lm_head(self._hidden(input_ids, Tensor([0], DType.int32), []))

    def step(self, input_ids: Tensor, position: Tensor, *cache: Tensor) -> Tensor:
        """Logits after the last token, with a cache that holds all tokens before ``input_ids``.

        Args:
            input_ids: int64 ``[batch, seq]``.
            position: int32 ``[1]``: how many tokens the cache holds. ``position + seq`` must not
                exceed ``context``: the caller checks it.
            cache: Keys and values of each layer, written in place.

        Returns:
            float32 ``[batch, vocab]``.
        """
        pairs = list(zip(cache[::2], cache[1::2], strict=True))
        return self.lm_head(self._hidden(input_ids, position, pairs)[:, -1])

    @property
    def facts(self) -> Mapping[str, object]:
        """Its sizes."""
        names = ("vocab_size", "hidden_size", "n_layers")
        return {name: getattr(self.config, name) for name in names}

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Positions and tokens."""
        return {"seq": self.context, "input_ids": (0, self.config.vocab_size - 1)}

    def entries(self) -> tuple[Entry, ...]:
        """``forward``, ``prefill`` and ``decode``."""
        position = {"position": TensorType(DType.int32, [1])}
        tokens = {"input_ids": TensorType(DType.int64, ["batch", "seq"])}
        token = {"input_ids": TensorType(DType.int64, ["batch", 1])}
        return (
            Entry("forward", self, tokens, ("logits",)),
            Entry("prefill", self.step, tokens | position, ("logits",), self.cache()),
            Entry("decode", self.step, token | position, ("logits",), self.cache()),
        )

    def cache(self) -> Mapping[str, BufferType]:
        """The keys and values of each layer, one fixed buffer of ``context`` positions each."""
        heads, dim = self.config.n_kv_heads, self.config.head_dim
        key = BufferType(DType.float32, ["batch", heads, dim, self.context])
        value = BufferType(DType.float32, ["batch", heads, self.context, dim])
        return {
            f"cache.{layer}.{part}": kind
            for layer in range(self.config.n_layers)
            for part, kind in (("key", key), ("value", value))
        }

    def _hidden(self, input_ids: Tensor, position: Tensor, cache: list[Cache]) -> Tensor:
        """The normalised hidden state ``[batch, seq, hidden]``."""
        x = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            kept = cache[index] if cache else None
            x, _ = layer(x, self.rotary.cos, self.rotary.sin, position, kept)
        return self.norm(x)


def build(
    config: Mapping[str, object], dtype: DType = DType.float32, context: int | None = None
) -> Decoder:
    """A decoder with its weights declared and not bound.

    Raises:
        ConfigurationError: Listing everything wrong with the configuration.
    """
    if context is not None and context < 1:
        raise ConfigurationError(f"a context of {context} positions", hint="it is at least 1")
    return Decoder(typed(DecoderConfig, config), dtype, context)
