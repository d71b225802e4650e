"""Sizes and options of an encoder, from its own raw configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral

from maxtool.errors import ConfigurationError
from maxtool.parity.decoder.mlp import ACTIVATIONS
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Settings:
    """What the arithmetic needs to know.

    Attributes:
        kind: Which names the tensors have: a row of ``tensors.NAMES``.
        vocab: Tokens.
        hidden: Width of a token's vector.
        inner: Width inside the MLP.
        layers: How many there are.
        heads: Of attention.
        head_dim: Width of a head.
        eps: Added to each variance.
        activation: Its name in configurations.
        context: Positions.
        types: Token types; 0 for no such table.
        offset: Rows of the table of positions before that of the first token.
        pad: The token that takes no position, where tokens are counted.
        theta: The rotary base; None where positions are learned.
        gated: Whether the MLP has a gate.
    """

    kind: str
    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    head_dim: int
    eps: float
    activation: str
    context: int
    types: int
    offset: int = 0
    pad: int | None = None
    theta: float | None = None
    gated: bool = False


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a checkpoint.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    if checkpoint.format == "gguf":
        name = str(checkpoint.metadata.get("general.architecture"))
        read = Reader(checkpoint.metadata, prefix=f"{name}.")
        settings = GGUF_ARCHITECTURES[name](read, checkpoint)
    else:
        config = checkpoint.config or {}
        read = Reader(config)
        settings = MODEL_TYPES[str(config.get("model_type"))](read)
    if settings.layers > len(checkpoint.tensors):
        read.problems.append(f"{settings.layers} layers are more than the tensors can make")
    if read.problems:
        raise ConfigurationError(
            "the configuration cannot be used for a reference",
            file=checkpoint.config_file or checkpoint.path,
            problems=read.problems,
        )
    return settings


def _bert(read: Reader) -> Settings:
    read.only("position_embedding_type", "absolute")
    read.only("is_decoder", False)
    heads, hidden = read.integer("num_attention_heads", 12), read.integer("hidden_size", 768)
    return Settings(
        kind="bert",
        vocab=read.integer("vocab_size", 30522),
        hidden=hidden,
        inner=read.integer("intermediate_size", 3072),
        layers=read.integer("num_hidden_layers", 12),
        heads=heads,
        head_dim=hidden // heads,
        eps=read.number("layer_norm_eps", 1e-12),
        activation=read.choice("hidden_act", ACTIVATIONS, "gelu"),
        context=read.integer("max_position_embeddings", 512),
        types=read.integer("type_vocab_size", 2),
    )


def _roberta(read: Reader) -> Settings:
    """Positions begin behind that of the padding token, and count tokens."""
    plain, pad = _bert(read), _pad(read.get("pad_token_id"))
    return replace(
        plain,
        vocab=read.integer("vocab_size", 50265),
        context=plain.context - pad - 1,
        offset=pad + 1,
        pad=pad,
    )


def _pad(value: object) -> int:
    """The padding token, which may be token 0; RoBERTa's own where none is told."""
    return int(value) if isinstance(value, Integral) and int(value) >= 0 else 1


def _distilbert(read: Reader) -> Settings:
    heads, hidden = read.integer("n_heads", 12), read.integer("dim", 768)
    return Settings(
        kind="distilbert",
        vocab=read.integer("vocab_size", 30522),
        hidden=hidden,
        inner=read.integer("hidden_dim", 3072),
        layers=read.integer("n_layers", 6),
        heads=heads,
        head_dim=hidden // heads,
        eps=1e-12,
        activation=read.choice("activation", ACTIVATIONS, "gelu"),
        context=read.integer("max_position_embeddings", 512),
        types=0,
    )


def _nomic_bert(read: Reader) -> Settings:
    """The keys of transformers 5, or those of nomic's own code."""

    def either(newer: str, older: str) -> int:
        return read.integer(newer if read.get(newer) is not None else older)

    for key in ("prenorm", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "causal"):
        read.only(key, False)
    read.only("rotary_emb_fraction", 1.0)
    rope = Reader(read.section("rope_parameters"), read.problems)
    rope.only("rope_type", "default")
    heads, hidden = either("num_attention_heads", "n_head"), either("hidden_size", "n_embd")
    newer = read.get("hidden_size") is not None
    return Settings(
        kind="nomic",
        vocab=read.integer("vocab_size"),
        hidden=hidden,
        inner=either("intermediate_size", "n_inner"),
        layers=either("num_hidden_layers", "n_layer"),
        heads=heads,
        head_dim=read.integer("head_dim", hidden // heads),
        eps=read.number("layer_norm_eps" if newer else "layer_norm_epsilon", 1e-12),
        activation="silu",
        context=read.integer("max_position_embeddings" if newer else "max_trained_positions", 2048),
        types=read.integer("type_vocab_size", 2),
        theta=rope.number("rope_theta", read.number("rotary_emb_base", 1000.0)),
        gated=True,
    )


def _gguf_bert(read: Reader, checkpoint: Checkpoint) -> Settings:
    """BERT, DistilBERT and RoBERTa; the last one's vocabulary is none of word pieces."""
    return _gguf(read, checkpoint, "gguf", pad=_counted_without(checkpoint))


def _gguf_nomic(read: Reader, checkpoint: Checkpoint) -> Settings:
    theta = read.number("rope.freq_base", 1000.0)
    return _gguf(read, checkpoint, "gguf-nomic", activation="silu", theta=theta, gated=True)


def _gguf(
    read: Reader,
    checkpoint: Checkpoint,
    kind: str,
    *,
    activation: str = "gelu",
    pad: int | None = None,
    theta: float | None = None,
    gated: bool = False,
) -> Settings:
    read.only("attention.causal", False)
    heads, hidden = read.integer("attention.head_count"), read.integer("embedding_length")
    return Settings(
        kind=kind,
        vocab=_rows(checkpoint, "token_embd.weight") or 1,
        hidden=hidden,
        inner=read.integer("feed_forward_length"),
        layers=read.integer("block_count"),
        heads=heads,
        head_dim=hidden // heads,
        eps=read.number("attention.layer_norm_epsilon"),
        activation=activation,
        context=read.integer("context_length"),
        types=_rows(checkpoint, "token_types.weight"),
        pad=pad,
        theta=theta,
        gated=gated,
    )


def _rows(checkpoint: Checkpoint, name: str) -> int:
    found = checkpoint.tensors.get(name)
    return found.shape[0] if found is not None and found.shape else 0


def _counted_without(checkpoint: Checkpoint) -> int | None:
    keys = checkpoint.metadata
    counted = keys.get("tokenizer.ggml.model") in ("gpt2", "t5")
    return _pad(keys.get("tokenizer.ggml.padding_token_id")) if counted else None


MODEL_TYPES: Mapping[str, Callable[[Reader], Settings]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "nomic_bert": _nomic_bert,
}
GGUF_ARCHITECTURES: Mapping[str, Callable[[Reader, Checkpoint], Settings]] = {
    "bert": _gguf_bert,
    "nomic-bert": _gguf_nomic,
}
