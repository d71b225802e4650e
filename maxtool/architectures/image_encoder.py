"""The encoder of images: one class whose options are the differences between ViT and its kin."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.config import typed
from maxtool.architectures.entry import Entry, Limit
from maxtool.architectures.image_embedding import ImageEmbedding
from maxtool.architectures.image_encoder_config import ImageEncoderConfig
from maxtool.architectures.image_model import image_entries
from maxtool.architectures.image_pooling import (
    CLASSIFIED,
    POOLINGS,
    AttentionPooler,
    ClassPooler,
    DensePooler,
    NormPooler,
)
from maxtool.architectures.pooling import of_length_1
from maxtool.architectures.pre_norm_layer import PreNormLayer
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor
from maxtool.nn import LayerNorm, Linear, Module, ModuleList


class ImageEncoder(Module[[Tensor], "tuple[Tensor, ...]"]):
    """A vision transformer; ``dtype`` is that of the matrices."""

    def __init__(self, config: ImageEncoderConfig, dtype: DType = DType.float32) -> None:
        self.config, hidden = config, config.hidden_size
        self.embed = ImageEmbedding(config, dtype)
        self.embed_norm = LayerNorm(hidden, eps=config.norm_eps) if config.embed_norm else None
        self.layers = ModuleList(PreNormLayer(config.layer, dtype) for _ in range(config.n_layers))
        self.norm = None if config.pooler == "norm" else LayerNorm(hidden, eps=config.norm_eps)
        self.pooler = _pooler(config, dtype)
        width = config.pooler_size or hidden
        self.projection = (
            Linear(width, config.projection_size, dtype) if config.projection_size else None
        )
        seen = hidden * (2 if config.classified == "cls_and_mean" else 1)
        self.classifier = (
            Linear(seen, config.n_labels, dtype, has_bias=True) if config.n_labels else None
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        """The vector of every token, and what the pooler makes of them if there is one.

        Args:
            pixel_values: ``[batch, channels, height, width]``, normalised.

        Returns:
            ``[batch, seq, hidden]``, and ``[batch, pooler_size]``.
        """
        x = self.embed(pixel_values)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        for layer in self.layers:
            x = layer(x, None, None)
        if self.norm is not None:
            x = self.norm(x)
        return (x,) if self.pooler is None else (x, self.pooler(x))

    def vector(self, pixel_values: Tensor) -> Tensor:
        """One vector for each image, ``[batch, size]``."""
        tokens, *pooled = self.forward(pixel_values)
        x = pooled[0] if self._is_pooled else self._tokens_as_one(tokens)
        if self.projection is not None and self._is_pooled:
            x = self.projection(x)
        return of_length_1(x) if self.config.normalize else x

    def classify(self, pixel_values: Tensor) -> Tensor:
        """A logit for each class, ``[batch, n_labels]``."""
        if self.classifier is None:
            raise ConfigurationError("the model has no classifier")
        seen = CLASSIFIED[self.config.classified](self.forward(pixel_values)[0], self._before)
        return self.classifier(seen)

    @property
    def context(self) -> None:
        """Return None: images have no positions to choose."""

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Limits of inputs: none, as pixels may be any numbers."""
        return {}

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, and how ``embed`` makes one vector."""
        names = ("hidden_size", "n_layers", "patch_size", "normalize")
        facts = {name: getattr(self.config, name) for name in names}
        facts["pooling"] = self.config.pooler if self._is_pooled else self._pooling
        facts["projection_size"] = self.config.projection_size if self._is_pooled else 0
        return {**facts, "image_size": self.config.side, "leading_tokens": self._before}

    def entries(self) -> tuple[Entry, ...]:
        """``forward``, ``embed``, and ``classify`` where there is a classifier."""
        return image_entries(self)

    @property
    def sizes(self) -> ImageEncoderConfig:
        """The sizes of images."""
        return self.config

    @property
    def features(self) -> tuple[str, ...]:
        """The names of what it gives when it is called."""
        return ("last_hidden_state", *(() if self.pooler is None else ("pooler_output",)))

    @property
    def _is_pooled(self) -> bool:
        """Return whether ``embed`` takes what the pooler makes."""
        return self.pooler is not None and self.config.pooling is None

    @property
    def _pooling(self) -> str:
        return self.config.pooling or ("cls" if self.config.class_token else "mean")

    def _tokens_as_one(self, tokens: Tensor) -> Tensor:
        return POOLINGS[self._pooling](tokens, self._before)

    @property
    def _before(self) -> int:
        """Tokens before the patches."""
        return self.config.class_token + self.config.n_registers


def _pooler(config: ImageEncoderConfig, dtype: DType) -> Module[[Tensor], Tensor] | None:
    hidden, size = config.hidden_size, config.pooler_size or config.hidden_size
    match config.pooler:
        case "dense":
            return DensePooler(hidden, size, config.pooler_act, dtype)
        case "attention":
            return AttentionPooler(config.layer, dtype)
        case "norm":
            return NormPooler(hidden, config.norm_eps)
        case "cls":
            return ClassPooler()
    return None


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,  # noqa: ARG001 - images have no context
) -> ImageEncoder:
    """An encoder of images with its weights declared and not bound.

    Raises:
        ConfigurationError: Listing all that is wrong with the configuration.
    """
    return ImageEncoder(typed(ImageEncoderConfig, config, ImageEncoderConfig.problems), dtype)
