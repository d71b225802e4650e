"""A model of two texts: an encoder reads the one, and a decoder writes the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from maxtool.architectures import decoder_checks
from maxtool.architectures.cache_layout import CacheLayout
from maxtool.architectures.config import out_of_range, typed
from maxtool.architectures.decoder import CPU_FORM, Decoder
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.encoder_decoder import EncoderDecoder
from maxtool.architectures.entry import Table
from maxtool.architectures.source_encoder import SourceEncoder
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import TensorType
from maxtool.nn import Embedding

SOURCE = "input_ids"
MOST_LAYERS = 10_000
# Options that both parts have, by the names of a decoder's.
SHARED = """
vocab_size hidden_size context_length norm_eps norm block position position_offset embed_norm
embed_scale final_norm mlp hidden_act attention_scale lm_head_bias tie_word_embeddings
relative_buckets relative_distance relative_each
"""


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """The options of a model of two texts; those that a decoder has, too, mean the same."""

    vocab_size: int
    hidden_size: int  # of both parts
    context_length: int  # positions of the source, and of what is written
    encoder_layers: int
    encoder_heads: int
    encoder_inner: int  # width inside the encoder's MLPs
    n_layers: int  # of the decoder, as are the next two
    n_heads: int
    intermediate_size: int
    head_dim: int | None = None  # ``hidden_size`` divided by the heads of a part when None
    norm_eps: float = 1e-5
    norm: str = "layer"
    block: str = "after"  # of both parts: ``after`` or ``pre``
    position: str = "learned"
    position_offset: int = 0
    relative_buckets: int | None = None
    relative_distance: int | None = None
    relative_each: bool = False
    embed_norm: bool = False
    embed_scale: float = 1.0
    final_norm: bool = False
    mlp: str = "plain"
    hidden_act: str = "gelu"
    biases: bool = True  # whether all projections have biases, and layer norms
    attention_scale: float | None = None
    scaled_head: bool = (
        False  # whether what the head reads is multiplied by ``hidden_size ** -0.5``
    )
    lm_head_bias: bool = False
    tie_word_embeddings: bool = True
    shared_embeddings: bool = True  # whether both parts have the same embeddings
    # Before every text that is written, and its last where it is as long as it may be; None where
    # nothing says so.
    start_token: int | None = None
    last_token: int | None = None

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        found = [*self._sizes()]
        parts = (self.decoder, self.encoder) if not found else ()
        every = [line for part in parts for line in decoder_checks.problems(part)]
        return found or [*dict.fromkeys(every)]

    @property
    def decoder(self) -> DecoderConfig:
        """The options of the decoder."""
        biases = self.biases
        return DecoderConfig(
            **{name: getattr(self, name) for name in SHARED.split()},
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_heads,
            head_dim=self.head_dim or self.hidden_size // self.n_heads,
            intermediate_size=self.intermediate_size,
            norm_bias=biases and self.norm == "layer",
            qkv_bias=biases,
            o_bias=biases,
            mlp_bias=biases,
            source_positions=self.context_length,
            source_varies=True,
            logits_scale=self.hidden_size**-0.5 if self.scaled_head else 1.0,
        )

    @property
    def encoder(self) -> DecoderConfig:
        """The options of the encoder, by the names of a decoder's."""
        return replace(
            self.decoder,
            n_layers=self.encoder_layers,
            n_heads=self.encoder_heads,
            n_kv_heads=self.encoder_heads,
            head_dim=self.head_dim or self.hidden_size // self.encoder_heads,
            intermediate_size=self.encoder_inner,
        )

    def _sizes(self) -> Iterator[str]:
        positive = (
            "vocab_size hidden_size context_length encoder_layers encoder_heads encoder_inner"
            " n_layers n_heads intermediate_size head_dim"
        )
        yield from out_of_range(self, positive.split(), ("norm_eps",))
        for name in ("encoder_heads", "n_heads"):
            heads = getattr(self, name)
            if self.head_dim is None and heads > 0 and self.hidden_size % heads:
                yield f"hidden_size {self.hidden_size} is not a multiple of {name} {heads}"
        if self.encoder_layers > MOST_LAYERS:
            yield f"encoder_layers is {self.encoder_layers}, above {MOST_LAYERS}"
        for name in ("start_token", "last_token"):
            token = getattr(self, name)
            if token is not None and not 0 <= token < self.vocab_size:
                yield f"{name} is {token}, of {self.vocab_size} tokens"


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,
    form: CacheLayout = CPU_FORM,
) -> EncoderDecoder:
    """A model of two texts with its weights declared and not bound.

    ``context`` is for both texts.
    """
    options = typed(Seq2SeqConfig, config, Seq2SeqConfig.problems)
    if context is not None and not 1 <= context <= options.context_length:
        hint = f"it is from 1 to {options.context_length}"
        raise ConfigurationError(f"a context of {context} positions", hint=hint)
    room = context or options.context_length
    encoder = SourceEncoder(options.encoder, dtype, room)
    decoder = Decoder(replace(options.decoder, source_positions=room), dtype, room, form)
    return EncoderDecoder(
        encoder,
        {SOURCE: TensorType(DType.int64, ["batch", "seq"])},
        decoder,
        {"encoder_layers": options.encoder_layers, "source_positions": room},
        shared=_shared(encoder, decoder, dtype) if options.shared_embeddings else None,
        tables=(
            Table("shared.weight", SOURCE),
            Table("encoder.embed.weight", SOURCE),
            Table("encoder.position.weight", "context", options.position_offset),
            *encoder.tables,
        ),
    )


def _shared(encoder: SourceEncoder, decoder: Decoder, dtype: DType) -> Embedding:
    """The embeddings of both parts, and of the head if it is tied."""
    config = decoder.config
    made = Embedding(config.vocab_size, config.hidden_size, dtype)
    for part in (encoder.embed, decoder.embed):
        part.set_shared_weight("weight", made.weight)
    if config.tie_word_embeddings and decoder.lm_head is not None:
        decoder.lm_head.set_shared_weight("weight", made.weight)
    return made
