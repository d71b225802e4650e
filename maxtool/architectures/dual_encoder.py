"""A model of images and texts: two towers whose vectors are of one space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.config import MAX_POSITIONS, out_of_range, typed, unsupported
from maxtool.architectures.entry import Entry, Limit, Table
from maxtool.architectures.image_encoder import ImageEncoder
from maxtool.architectures.image_encoder_config import ImageEncoderConfig
from maxtool.architectures.image_model import PIXELS
from maxtool.architectures.pooling import of_length_1
from maxtool.architectures.pre_norm_layer import LayerSizes
from maxtool.architectures.text_tower import TOWER_POOLINGS, TextTower, TextTowerSizes
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor, TensorType, Weight, ops
from maxtool.runtime.loader.specs import EMBED, EMBED_IMAGE, SCORE

CHOICES = {"text_hidden_act": tuple(ACTIVATIONS), "text_pooling": tuple(TOWER_POOLINGS)}
PART = "text"
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DualEncoderConfig(ImageEncoderConfig):
    """The options of a model of images and texts; those of its encoder of images have no prefix."""

    vocab_size: int
    context_length: int  # positions of a text
    text_hidden_size: int
    text_intermediate_size: int
    text_layers: int
    text_heads: int
    text_norm_eps: float
    text_hidden_act: str = "gelu"
    text_causal: bool = False  # whether a token sees only those up to itself
    # The token whose vector is that of a text: ``eos``, the first that ends it, or ``last``, that
    # in the last place, padding too.
    text_pooling: str = "eos"
    eos_token_id: int | None = None  # what ends a text; 2 is the largest id that it has
    text_projection_size: int
    text_projection_bias: bool = False
    text_fixed: bool = False  # whether texts are always filled up to ``context_length``
    logit_bias: bool = False  # whether logits have a bias
    scores: str = "softmax"  # what makes shares of the logits of several texts

    @property
    def image_options(self) -> ImageEncoderConfig:
        """The options of the encoder of images alone."""
        names = (field.name for field in fields(ImageEncoderConfig))
        return ImageEncoderConfig(**{name: getattr(self, name) for name in names})

    @property
    def tower(self) -> TextTowerSizes:
        """The sizes and options of the tower of texts."""
        layer = LayerSizes(
            hidden_size=self.text_hidden_size,
            intermediate_size=self.text_intermediate_size,
            n_heads=self.text_heads,
            head_dim=self.text_hidden_size // self.text_heads,
            norm_eps=self.text_norm_eps,
            hidden_act=self.text_hidden_act,
            causal=self.text_causal,
        )
        return TextTowerSizes(
            vocab_size=self.vocab_size,
            context_length=self.context_length,
            n_layers=self.text_layers,
            layer=layer,
            pooling=self.text_pooling,
            eos_token_id=self.eos_token_id,
            projection_size=self.text_projection_size,
            projection_bias=self.text_projection_bias,
            normalize=self.normalize,
        )

    def all_problems(self) -> list[str]:
        """Return the problems with the values of both towers, one line each."""
        found = [*self.image_options.problems(), *self._text_sizes()]
        return [*found, *unsupported(self, CHOICES), *self._meeting()]

    def _text_sizes(self) -> Iterator[str]:
        positive = (
            "vocab_size context_length text_hidden_size text_intermediate_size text_layers"
            " text_heads text_projection_size"
        )
        yield from out_of_range(self, positive.split(), ("text_norm_eps",))
        if self.text_heads > 0 and self.text_hidden_size % self.text_heads:
            width = f"text_hidden_size {self.text_hidden_size}"
            yield f"{width} is not a multiple of text_heads {self.text_heads}"
        if self.text_layers > MOST_LAYERS:
            yield f"text_layers is {self.text_layers}, above {MOST_LAYERS}"
        if self.context_length > MAX_POSITIONS:
            yield f"context_length is {self.context_length}, above {MAX_POSITIONS}"
        # One that no text has is what transformers looks for, too: it takes the first token then.
        if self.text_pooling == "eos" and (self.eos_token_id is None or self.eos_token_id < 0):
            yield f"eos_token_id is {self.eos_token_id}"

    def _meeting(self) -> Iterator[str]:
        """Yield what keeps the vectors of both towers from being of one space."""
        if self.pooler == "none":
            yield "pooler 'none' makes no vector of an image"
        width = self.projection_size or self.pooler_size or self.hidden_size
        if width != self.text_projection_size:
            yield f"vectors of images have {width} elements, of texts {self.text_projection_size}"


class DualEncoder(ImageEncoder):
    """An encoder of images, and a tower of texts whose vectors are compared with the images'."""

    def __init__(
        self, config: DualEncoderConfig, dtype: DType = DType.float32, context: int | None = None
    ) -> None:
        super().__init__(config, dtype)
        self.options, self._positions = config, context or config.context_length
        self.text = TextTower(config.tower, dtype)
        self.logit_scale = Weight("logit_scale", DType.float32, ())
        self.logit_bias = Weight("logit_bias", DType.float32, ()) if config.logit_bias else None

    def score(self, image_embeds: Tensor, text_embeds: Tensor) -> Tensor:
        """A logit for each image and each text, of their vectors: ``[images, texts]``."""
        images, texts = of_length_1(image_embeds), of_length_1(text_embeds)
        logits = ops.matmul(images, texts.permute([1, 0])) * ops.exp(self.logit_scale)
        return logits if self.logit_bias is None else logits + self.logit_bias

    def compare(self, pixel_values: Tensor, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """A logit for each image and each text."""
        return self.score(self.vector(pixel_values), self.text.vector(input_ids, attention_mask))

    @property
    def context(self) -> int:  # type: ignore[override]
        """Positions of a text."""
        return self._positions

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Positions, tokens and masks."""
        tokens = (0, self.options.vocab_size - 1)
        return {"seq": self.context, "input_ids": tokens, "attention_mask": (0, 1)}

    @property
    def tables(self) -> tuple[Table, ...]:
        """The embedding, and the table of positions."""
        rows = {"embed": "input_ids", "position": "context"}
        return tuple(Table(f"{PART}.{name}.weight", index) for name, index in rows.items())

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes of both towers, and what makes shares of logits."""
        names = ("vocab_size", "text_hidden_size", "text_layers", "text_fixed", "scores")
        return {**super().facts, **{name: getattr(self.options, name) for name in names}}

    def entries(self) -> tuple[Entry, ...]:
        """``forward`` of images and texts, a vector of either, and ``score`` of such vectors."""
        side, channels = self.config.side, self.config.n_channels
        id_type = TensorType(DType.int64, ["batch", "seq"])
        texts, ones = {"input_ids": id_type, "attention_mask": id_type}, {"attention_mask": 1}

        def pixels(count: str) -> dict[str, TensorType]:
            return {PIXELS: TensorType(DType.float32, [count, channels, side, side])}

        def rows(count: str) -> TensorType:
            return TensorType(DType.float32, [count, self.options.text_projection_size])

        vectors = {"image_embeds": rows("images"), "text_embeds": rows("batch")}
        logits = ("logits_per_image",)
        return (
            Entry("forward", self.compare, {**pixels("images"), **texts}, logits, defaults=ones),
            Entry(EMBED, self.text.vector, texts, ("embeddings",), defaults=ones),
            Entry(EMBED_IMAGE, self.vector, pixels("batch"), ("embeddings",)),
            Entry(SCORE, self.score, vectors, logits),
        )


def build(
    config: Mapping[str, object], dtype: DType = DType.float32, context: int | None = None
) -> DualEncoder:
    """A model of images and texts with its weights declared and not bound.

    Raises:
        ConfigurationError: Listing all that is wrong with the configuration.
    """
    options = typed(DualEncoderConfig, config, DualEncoderConfig.all_problems)
    longest = options.context_length
    least = longest if options.text_fixed else 1
    if context is not None and not least <= context <= longest:
        allowed = f"it is {longest}" if options.text_fixed else f"it is from 1 to {longest}"
        raise ConfigurationError(f"a context of {context} positions", hint=allowed)
    return DualEncoder(options, dtype, context)
