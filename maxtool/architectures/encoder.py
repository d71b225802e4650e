"""The encoder: one class whose options are the differences between BERT and its relatives."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.classifier_head import ClassifierHead
from maxtool.architectures.config import typed
from maxtool.architectures.dense_layers import DenseLayers
from maxtool.architectures.disentangled_attention import DisentangledAttention
from maxtool.architectures.distance_vectors import DistanceVectors, Places
from maxtool.architectures.encoder_attention import EncoderAttention, HeadsOfAttention
from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.architectures.encoder_views import Views
from maxtool.architectures.entry import Entry, Limit, Table
from maxtool.architectures.head_options import head_options
from maxtool.architectures.mlp import MLPS
from maxtool.architectures.pooling import pooled
from maxtool.architectures.pre_norm_layer import PreNormLayer
from maxtool.architectures.relative_positions import RelativeBias
from maxtool.architectures.rotary_angles import Angles
from maxtool.architectures.token_convolution import TokenConvolution
from maxtool.architectures.token_masks import factors
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor, TensorType, ops
from maxtool.nn import Embedding, LayerNorm, Linear, Module, ModuleList


class EncoderLayer(Module[..., Tensor]):
    """Attention and MLP, each added to its input and the sum normalised."""

    def __init__(
        self, config: EncoderConfig, dtype: DType, vectors: DistanceVectors | None
    ) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.attn = _attention(config, dtype, vectors)
        self.attn_norm = _norm(config)
        biased, last = config.mlp_bias, config.down_bias
        mlp = MLPS[config.mlp]
        self.mlp = mlp(hidden, inner, config.hidden_act, dtype, biased, down_bias=last)
        self.mlp_norm = _norm(config)

    def forward(self, x: Tensor, mask: Tensor, given: Angles | Places | None) -> Tensor:
        """Map ``[batch, seq, hidden]`` to the same shape, as attention does."""
        x = self.attn_norm(x + self.attn(x, mask, given))
        return self.mlp_norm(x + self.mlp(x))


class Encoder(Module[[Tensor, Tensor, Tensor], "tuple[Tensor, ...]"]):
    """A bidirectional transformer over tokens; ``dtype`` is that of the matrices.

    The context, where none is named, is as long as texts are cut to, or as it was trained for.
    """

    def __init__(
        self, config: EncoderConfig, dtype: DType = DType.float32, context: int | None = None
    ) -> None:
        self.config, trained = config, config.context_length
        self.context = context or min(config.max_length or trained, trained)
        hidden, learned = config.hidden_size, config.position == "learned"
        rows, width = trained + config.position_offset, config.embedding_size or hidden
        self.embed = Embedding(config.vocab_size, width, dtype)
        self.position = Embedding(rows, width, dtype) if learned else None
        self.token_type = (
            Embedding(config.token_types, width, dtype) if config.token_types else None
        )
        self.embed_norm = LayerNorm(
            hidden if config.widened_first else width,
            eps=config.norm_eps,
            use_bias=config.norm_bias,
        )
        self.widened = (
            Linear(width, hidden, dtype, has_bias=not config.widened_first)
            if width != hidden
            else None
        )
        has_vectors, vectors = config.has_distances, None
        self.distances = Embedding(2 * config.distance_span, hidden) if has_vectors else None
        self.distances_norm = _norm(config) if has_vectors and config.distance_norm else None
        if self.distances is not None:
            vectors = DistanceVectors(self.distances, self.distances_norm)
        self.conv = TokenConvolution(config) if config.conv_taps else None
        self.relative = (
            RelativeBias(config, config.relative_rows) if config.relative_buckets else None
        )
        self.layers = ModuleList(_layer(config, i, dtype, vectors) for i in range(config.n_layers))
        self.norm = _norm(config) if config.block == "pre" else None
        self.pooler = Linear(hidden, hidden, dtype, has_bias=True) if config.pooler else None
        self.dense = DenseLayers(config, dtype) if config.dense_features else None
        self.classifier = ClassifierHead(config, dtype) if config.n_labels else None
        self.views = Views(config, self.context)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The vector of every token, and that of BERT's pooler if there is one.

        All are ``[batch, seq]``; the mask is 1 for a token and 0 for padding. Absent types are 0.
        """
        x = self._embedded(input_ids, token_type_ids)
        views = self.views.of(input_ids, attention_mask, self.relative)
        if self.config.blank_padding:
            x = x * factors(attention_mask)
        embedded = x
        for index, layer in enumerate(self.layers):
            x = layer(x, *views[self.config.has_window(index)])
            if index == 0 and self.conv is not None:
                x = self.conv(embedded, x, attention_mask)
        if self.norm is not None:
            x = self.norm(x)
        return (x,) if self.pooler is None else (x, ops.tanh(self.pooler(x[:, 0])))

    def pool(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector for each text."""
        x = self.forward(input_ids, attention_mask)[0]
        pooling = self.config.pooling or "mean"
        normalize = self.config.normalize
        return pooled(pooling, x, attention_mask, normalize=normalize, dense=self.dense)

    def classify(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """A logit for each label, ``[batch, n_labels]``."""
        if self.classifier is None:
            raise ConfigurationError("the model has no classifier")
        tokens, *pooler = self.forward(input_ids, attention_mask, token_type_ids)
        if pooler and self.config.classifier_act is None:
            return self.classifier(pooler[0])
        pooling = self.config.classifier_pooling or "cls"
        return self.classifier(pooled(pooling, tokens, attention_mask, normalize=False))

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, how ``embed`` pools tokens into one vector, and what a classifier tells."""
        names = ("vocab_size", "hidden_size", "n_layers", "normalize")
        facts = {name: getattr(self.config, name) for name in names}
        facts["pooling"] = self.config.pooling or "mean"
        if self.config.default_prompt is not None:
            facts["prompt"] = self.config.default_prompt
        if self.classifier is None:
            return facts
        labels = self.config.named_labels
        named = {} if labels is None else {"labels": [*labels]}
        return {**facts, **named, "scores": self.config.scoring}

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Positions, tokens, token types and masks."""
        types = {"token_type_ids": (0, self.config.token_types - 1)} if self._has_types else {}
        tokens = (0, self.config.vocab_size - 1)
        return {"seq": self.context, "input_ids": tokens, "attention_mask": (0, 1), **types}

    @property
    def tables(self) -> tuple[Table, ...]:
        """The vectors of tokens, of their types and of positions, and what else these choose."""
        return (
            Table("embed.weight", "input_ids"),
            Table("position.weight", "context", self.config.position_offset),
            *([Table("token_type.weight", "token_type_ids")] if self._has_types else []),
            *self.views.tables,
        )

    def entries(self) -> tuple[Entry, ...]:
        """``forward`` and ``embed``, and ``classify`` where there is a classifier."""
        id_type = TensorType(DType.int64, ["batch", "seq"])
        inputs = {"input_ids": id_type, "attention_mask": id_type}
        types = {"token_type_ids": id_type} if self._has_types else {}
        pooler = () if self.pooler is None else ("pooler_output",)
        ones = {"attention_mask": 1}
        zeros = dict.fromkeys(types, 0)
        outputs = ("last_hidden_state", *pooler)
        entries = (
            Entry("forward", self, {**inputs, **types}, outputs, defaults=ones | zeros),
            Entry("embed", self.pool, inputs, ("embeddings",), defaults=ones),
        )
        if self.classifier is None:
            return entries
        taken, defaults = {**inputs, **types}, ones | zeros
        return (*entries, Entry("classify", self.classify, taken, ("logits",), defaults=defaults))

    @property
    def _has_types(self) -> bool:
        """Return whether there is more than one type of tokens to choose from."""
        return self.config.token_types > 1

    def _embedded(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        x = self.embed(input_ids)
        if self.token_type is not None:
            x = x + self.token_type(input_ids * 0 if token_type_ids is None else token_type_ids)
        if self.position is not None:
            x = x + self.position(self._rows(input_ids))
        parts = [self.embed_norm, *([] if self.widened is None else [self.widened])]
        for part in reversed(parts) if self.config.widened_first else parts:
            x = part(x)
        return x

    def _rows(self, input_ids: Tensor) -> Tensor:
        """The row of each token in the table of positions; padding takes the one before all."""
        if self.config.pad_token_id is None:
            counted = input_ids * 0 + 1
        else:
            counted = ops.not_equal(input_ids, self.config.pad_token_id).cast(DType.int64)
        return ops.cumsum(counted, 1) * counted + (self.config.position_offset - 1)


def _layer(
    config: EncoderConfig, index: int, dtype: DType, vectors: DistanceVectors | None
) -> Module[..., Tensor]:
    if config.block == "pre":
        return PreNormLayer(config.layer(index), dtype)
    return EncoderLayer(config, dtype, vectors)


def _attention(
    config: EncoderConfig, dtype: DType, vectors: DistanceVectors | None
) -> HeadsOfAttention:
    if vectors is not None:
        return DisentangledAttention(config, dtype, vectors)
    return EncoderAttention(**head_options(config), dtype=dtype)


def _norm(config: EncoderConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps, use_bias=config.norm_bias)


def build(
    config: Mapping[str, object], dtype: DType = DType.float32, context: int | None = None
) -> Encoder:
    """An encoder with its weights declared and not bound."""
    if context is not None and context < 1:
        raise ConfigurationError(f"a context of {context} positions", hint="it is at least 1")
    return Encoder(typed(EncoderConfig, config, EncoderConfig.problems), dtype, context)
