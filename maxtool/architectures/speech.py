"""A model of speech: an encoder of sounds, and a decoder that writes what is said in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from maxtool.architectures import decoder_checks
from maxtool.architectures.audio_encoder import AudioEncoder, AudioEncoderSizes
from maxtool.architectures.cache_layout import CacheLayout
from maxtool.architectures.config import MAX_POSITIONS, out_of_range, typed
from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.encoder_decoder import EncoderDecoder
from maxtool.architectures.pre_norm_layer import LayerSizes
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import TensorType

FEATURES = "input_features"
MOST_LAYERS = 10_000


@dataclass(frozen=True, kw_only=True)
class SpeechConfig:
    """The options of a model of speech (Whisper); layers of both parts normalise before."""

    vocab_size: int
    hidden_size: int  # of both parts
    n_mels: int  # bands of the spectrogram
    source_positions: int  # of the encoder's output
    context_length: int  # positions of a text
    encoder_layers: int
    encoder_heads: int
    encoder_inner: int  # width inside the encoder's MLPs
    n_layers: int  # of the decoder, as are the next two
    n_heads: int
    intermediate_size: int
    norm_eps: float = 1e-5
    hidden_act: str = "gelu"
    tie_word_embeddings: bool = True

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        return [*self._sizes()] or decoder_checks.problems(self.decoder)

    @property
    def encoder(self) -> AudioEncoderSizes:
        """The sizes of the encoder."""
        layer = LayerSizes(
            hidden_size=self.hidden_size,
            intermediate_size=self.encoder_inner,
            n_heads=self.encoder_heads,
            head_dim=self.hidden_size // self.encoder_heads,
            norm_eps=self.norm_eps,
            hidden_act=self.hidden_act,
            k_bias=False,
        )
        return AudioEncoderSizes(self.encoder_layers, self.n_mels, self.source_positions, layer)

    @property
    def decoder(self) -> DecoderConfig:
        """The options of the decoder."""
        shared = (
            "vocab_size hidden_size intermediate_size n_layers n_heads context_length norm_eps"
            " hidden_act tie_word_embeddings source_positions"
        )
        return DecoderConfig(
            **{name: getattr(self, name) for name in shared.split()},
            n_kv_heads=self.n_heads,
            head_dim=self.hidden_size // self.n_heads,
            position="learned",
            norm="layer",
            norm_bias=True,
            qkv_bias=True,
            k_bias=False,
            o_bias=True,
            mlp="plain",
            mlp_bias=True,
        )

    def _sizes(self) -> Iterator[str]:
        positive = (
            "vocab_size hidden_size n_mels source_positions context_length encoder_layers"
            " encoder_heads encoder_inner n_layers n_heads intermediate_size"
        )
        yield from out_of_range(self, positive.split(), ("norm_eps",))
        for name in ("encoder_heads", "n_heads"):
            if (heads := getattr(self, name)) > 0 and self.hidden_size % heads:
                yield f"hidden_size {self.hidden_size} is not a multiple of {name} {heads}"
        if self.encoder_layers > MOST_LAYERS:
            yield f"encoder_layers is {self.encoder_layers}, above {MOST_LAYERS}"
        if self.source_positions > MAX_POSITIONS // 2:
            yield f"source_positions is {self.source_positions}, above {MAX_POSITIONS // 2}"


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,
    form: CacheLayout = CPU_FORM,
) -> EncoderDecoder:
    """A model of speech with its weights declared and not bound."""
    options = typed(SpeechConfig, config, SpeechConfig.problems)
    if context is not None and not 1 <= context <= options.context_length:
        hint = f"it is from 1 to {options.context_length}"
        raise ConfigurationError(f"a context of {context} positions", hint=hint)
    sizes = options.encoder
    features = TensorType(DType.float32, ["batch", options.n_mels, sizes.frames])
    return EncoderDecoder(
        AudioEncoder(sizes, dtype),
        {FEATURES: features},
        Decoder(options.decoder, dtype, context, form),
        {
            "encoder_layers": options.encoder_layers,
            "n_mels": options.n_mels,
            "source_positions": options.source_positions,
        },
    )
