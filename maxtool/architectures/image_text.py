"""A decoder that reads images between the words: what an encoder sees becomes tokens of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isqrt

from maxtool.architectures.cache_layout import CacheLayout, Location
from maxtool.architectures.config import typed
from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_checks import problems
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.entry import Entry
from maxtool.architectures.image_encoder import ImageEncoder
from maxtool.architectures.image_encoder_config import ImageEncoderConfig
from maxtool.architectures.image_model import PIXELS
from maxtool.architectures.rope_scaling import BY_LENGTH
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor, TensorType, ops
from maxtool.nn import Linear, Module, RMSNorm
from maxtool.runtime.loader.specs import LOOK

VISION, IMAGE = "vision_", "image_"
SEEN = "image_embeds"


@dataclass(frozen=True, slots=True)
class ImageTokens:
    """The tokens that an image becomes in a text."""

    tokens: int  # of an image, a square number
    token_id: int  # what stands in the text for each of them
    begin_id: int  # the token before them
    end_id: int  # the one behind them
    around: str = ""  # the text before and behind all of this

    @property
    def side(self) -> int:
        """Tokens along each side of an image."""
        return isqrt(max(self.tokens, 0))

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        named = ("token_id", "begin_id", "end_id")
        found = [f"{IMAGE}{name} is below 0" for name in named if getattr(self, name) < 0]
        if self.tokens < 1 or self.side**2 != self.tokens:
            found.append(f"{IMAGE}tokens is {self.tokens}, no square number")
        return found


class Projector(Module[[Tensor], Tensor]):
    """Patches of an image as fewer vectors as wide as those of words (Gemma 3).

    The means of squares of patches, normalised, times a matrix.
    """

    def __init__(
        self, vision: ImageEncoderConfig, image: ImageTokens, hidden: int, dtype: DType
    ) -> None:
        self.side, self.grid = image.side, vision.image_size // vision.patch_size
        self.norm = RMSNorm(vision.hidden_size, vision.norm_eps)
        self.matrix = Linear(vision.hidden_size, hidden, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[images, patches, vision hidden]`` to ``[images, tokens, hidden]``."""
        images, _, width = x.shape
        side, square = self.side, self.grid // self.side
        squares = x.reshape([images, side, square, side, square, width])
        means = ops.mean(ops.mean(squares, axis=4), axis=2)
        return self.matrix(self.norm(means.reshape([images, side * side, width])))


class ImageTextDecoder(Decoder):
    """A decoder with an encoder of images, whose entry ``look`` reads one into the cache."""

    def __init__(
        self,
        config: DecoderConfig,
        vision: ImageEncoderConfig,
        image: ImageTokens,
        dtype: DType = DType.float32,
        context: int | None = None,
        form: CacheLayout = CPU_FORM,
        draws: bool = False,
    ) -> None:
        super().__init__(config, dtype, context, form, draws)
        self.vision, self.image = ImageEncoder(vision, dtype), image
        self.projector = Projector(vision, image, config.hidden_size, dtype)

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, and the tokens of an image."""
        image = self.image
        ids = {"token": image.token_id, "begin": image.begin_id, "end": image.end_id}
        told = {"count": image.tokens, **ids, "around": image.around}
        return {**super().facts, "image_tokens": told}

    def look(self, pixel_values: Tensor, position: Tensor, *cache: Tensor) -> Tensor:
        """The vectors ``[batch, tokens, hidden]`` of images, read into the cache.

        The first stands at ``position``; the tokens of an image see each other, and all before.
        """
        return self._look(pixel_values, (position, None), cache)

    def look_slots(
        self, pixel_values: Tensor, position: Tensor, slot: Tensor, *cache: Tensor
    ) -> Tensor:
        """The same for one image, read into a slot of the cache."""
        return self._look(pixel_values, (position, slot), cache)

    def _look(self, pixel_values: Tensor, location: Location, cache: tuple[Tensor, ...]) -> Tensor:
        seen = self.projector(self.vision(pixel_values)[0])
        places = ops.broadcast_to(Tensor([[0]], DType.int64, seen.device), [*seen.shape[:2]])
        with self._formed(replace(self.form, causal=False)):
            turns = self._turned(places, location[0], self.context)
            self._read(seen, turns, location, self._by_layer(cache))
        return seen

    def entries(self) -> tuple[Entry, ...]:
        """The entries of a decoder, and ``look``."""
        vision, slotted = self.vision.config, self.form.slots > 1
        rows, look = (1, self.look_slots) if slotted else ("batch", self.look)
        pixels = [rows, vision.n_channels, vision.side, vision.side]
        inputs = {PIXELS: TensorType(DType.float32, pixels)}
        numbers = ("position", "slot") if slotted else ("position",)
        inputs |= {number: TensorType(DType.int32, [1]) for number in numbers}
        return *super().entries(), Entry(LOOK, look, inputs, (SEEN,), self.cache())


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,
    form: CacheLayout = CPU_FORM,
    draws: bool = False,
) -> ImageTextDecoder:
    """A decoder that reads images with its weights declared and not bound.

    The options of the encoder begin with ``vision_``, those of tokens with ``image_``.

    Raises:
        ConfigurationError: Listing all that is wrong with one of the parts.
    """
    rest = dict(config)
    image = typed(ImageTokens, _taken(rest, IMAGE), ImageTokens.problems)
    vision = _vision(_taken(rest, VISION))
    options = typed(DecoderConfig, rest, problems)
    if found := [*_misfits(vision, image, options)]:
        raise ConfigurationError("the model's configuration does not work", problems=found)
    if context is not None and not 1 <= context <= options.max_context:
        hint = f"it is from 1 to {options.max_context}"
        raise ConfigurationError(f"a context of {context} positions", hint=hint)
    if (context or options.max_context) <= image.tokens:
        what = f"a context of {context or options.max_context} positions"
        raise ConfigurationError(f"{what} has no room for an image of {image.tokens} and a token")
    return ImageTextDecoder(options, vision, image, dtype, context, form, draws)


def _taken(config: dict[str, object], prefix: str) -> dict[str, object]:
    """Take the options with a prefix out of a configuration."""
    names = [name for name in config if name.startswith(prefix)]
    return {name.removeprefix(prefix): config.pop(name) for name in names}


def _vision(fields: Mapping[str, object]) -> ImageEncoderConfig:
    """The options of an encoder of patches alone, whose table of positions has a row for each."""
    fields = {**fields, "class_token": False}
    sizes = fields.get("image_size"), fields.get("patch_size")
    match sizes:
        case int(size), int(patch) if patch > 0:
            fields = {**fields, "n_patches": (size // patch) ** 2}
    return typed(ImageEncoderConfig, fields, ImageEncoderConfig.problems)


def _misfits(vision: ImageEncoderConfig, image: ImageTokens, decoder: DecoderConfig) -> list[str]:
    """Sizes of one part that do not fit the other."""
    found, grid = [], vision.image_size // vision.patch_size
    if grid % image.side:
        found.append(f"{image.tokens} tokens of an image are no squares of {grid} x {grid} patches")
    windows = [window for layer in range(decoder.n_layers) if (window := decoder.window(layer))]
    if min(windows, default=image.tokens) < image.tokens:
        found.append(f"a window of {min(windows)} is less than the {image.tokens} of an image")
    if decoder.pooling is not None:
        found.append("a model that reads images makes no vectors of texts; its language model may")
    if decoder.rope_scaling in BY_LENGTH:
        found.append(f"rope scaling {decoder.rope_scaling!r} is not supported with images")
    if decoder.layer_embed_size is not None:
        found.append("tokens have vectors for each layer, and those of images have none")
    if not all(decoder.has_attention(layer) for layer in range(decoder.n_layers)):
        found.append("there are layers without attention, which read no images")
    return found
