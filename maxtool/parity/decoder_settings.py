"""Sizes, options and tensor names of a Llama-like decoder, from its own raw configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from maxtool.errors import ConfigurationError
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint

MODEL_TYPES, GGUF_ARCHITECTURES = ("llama", "mistral"), ("llama",)
ATTENTION, MLP = ("q", "k", "v", "o"), ("gate", "up", "down")

# What each tensor is called, without ".weight" or ".bias": the two dialects name a layer's tensors
# below "model.layers.N." and "blk.N.".
NAMES: dict[str, dict[str, str]] = {
    "hf": {
        "embed": "model.embed_tokens",
        "norm": "model.norm",
        "head": "lm_head",
        "attn_norm": "model.layers.{}.input_layernorm",
        "q": "model.layers.{}.self_attn.q_proj",
        "k": "model.layers.{}.self_attn.k_proj",
        "v": "model.layers.{}.self_attn.v_proj",
        "o": "model.layers.{}.self_attn.o_proj",
        "mlp_norm": "model.layers.{}.post_attention_layernorm",
        "gate": "model.layers.{}.mlp.gate_proj",
        "up": "model.layers.{}.mlp.up_proj",
        "down": "model.layers.{}.mlp.down_proj",
    },
    "gguf": {
        "embed": "token_embd",
        "norm": "output_norm",
        "head": "output",
        "attn_norm": "blk.{}.attn_norm",
        "q": "blk.{}.attn_q",
        "k": "blk.{}.attn_k",
        "v": "blk.{}.attn_v",
        "o": "blk.{}.attn_output",
        "mlp_norm": "blk.{}.ffn_norm",
        "gate": "blk.{}.ffn_gate",
        "up": "blk.{}.ffn_up",
        "down": "blk.{}.ffn_down",
    },
}


@dataclass(frozen=True, slots=True)
class Settings:
    """A decoder's sizes and options, as one checkpoint's own configuration states them."""

    dialect: str
    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float
    factor: float
    window: int | None
    tied: bool
    biased: frozenset[str]

    @property
    def pairs(self) -> bool:
        """Whether a head's neighbours rotate together (GGUF) rather than its halves."""
        return self.dialect == "gguf"

    def name(self, role: str, kind: str = "weight", layer: int = 0) -> str:
        """The checkpoint's name for a tensor."""
        return f"{NAMES[self.dialect][role].format(layer)}.{kind}"

    def shape(self, role: str) -> tuple[int, ...]:
        """The shape of a role's weight; a bias has its first dimension."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        table = {
            "embed": (self.vocab, self.hidden),
            "head": (self.vocab, self.hidden),
            "q": (q, self.hidden),
            "k": (kv, self.hidden),
            "v": (kv, self.hidden),
            "o": (self.hidden, q),
            "gate": (self.inner, self.hidden),
            "up": (self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }
        return table.get(role, (self.hidden,))

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and shape of every tensor that the computation reads."""
        for role in ("embed", "norm", *(() if self.tied else ("head",))):
            yield self.name(role), self.shape(role)
        for layer in range(self.layers):
            for role in ("attn_norm", *ATTENTION, "mlp_norm", *MLP):
                yield self.name(role, layer=layer), self.shape(role)
            for role in sorted(self.biased):
                yield self.name(role, "bias", layer), self.shape(role)[:1]


def read_settings(checkpoint: Checkpoint) -> Settings:
    """The settings of a checkpoint, from its own raw configuration.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    if checkpoint.format == "gguf":
        return _gguf_settings(checkpoint)
    if checkpoint.config is None:
        raise ConfigurationError("there is no config.json beside the tensors", file=checkpoint.path)
    return _hf_settings(checkpoint, checkpoint.config)


def _hf_settings(checkpoint: Checkpoint, config: Mapping[str, object]) -> Settings:
    file = checkpoint.config_file or checkpoint.path
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise ConfigurationError(
            f"there is no reference for model_type {kind!r}",
            file=file,
            hint="llama and mistral can be checked",
        )
    read = Reader(config)
    read.only("hidden_act", "silu")
    read.only("quantization_config", None)
    heads, hidden = read.integer("num_attention_heads"), read.integer("hidden_size")
    theta, factor = _hf_rope(read)
    settings = Settings(
        dialect="hf",
        vocab=read.integer("vocab_size"),
        hidden=hidden,
        inner=read.integer("intermediate_size"),
        layers=read.integer("num_hidden_layers"),
        heads=heads,
        kv_heads=read.integer("num_key_value_heads", heads),
        head_dim=read.integer("head_dim", hidden // heads),
        eps=read.number("rms_norm_eps", 1e-6),
        theta=theta,
        factor=factor,
        window=_hf_window(read, kind),
        tied=read.flag("tie_word_embeddings"),
        biased=_hf_biased(read) if kind == "llama" else frozenset(),
    )
    _check(settings, read.problems, checkpoint, file)
    return settings


def _hf_biased(read: Reader) -> frozenset[str]:
    flags = {"attention_bias": ATTENTION, "mlp_bias": MLP}
    return frozenset(role for key, roles in flags.items() if read.flag(key) for role in roles)


def _hf_rope(read: Reader) -> tuple[float, float]:
    """Base and scaling factor; ``rope_parameters`` is what transformers 5 writes for both keys."""
    merged: dict[str, object] = {"rope_theta": read.values.get("rope_theta")}
    for key in ("rope_scaling", "rope_parameters"):
        section = read.values.get(key) or {}
        if isinstance(section, Mapping):
            merged |= section
        else:
            read.problems.append(f"{key} is not a table")
    rope = Reader(merged, read.problems)
    rope.only("type", "default", "linear")
    rope.only("rope_type", "default", "linear")
    rope.only("partial_rotary_factor", 1.0)
    linear = merged.get("rope_type", merged.get("type")) == "linear"
    return rope.number("rope_theta", 10000.0), rope.number("factor") if linear else 1.0


def _hf_window(read: Reader, kind: object) -> int | None:
    """Mistral's window: 4096 where the key is absent, none where it is null."""
    absent = "sliding_window" not in read.values
    if kind != "mistral" or (not absent and read.values["sliding_window"] is None):
        return None
    return read.integer("sliding_window", 4096)


def _gguf_settings(checkpoint: Checkpoint) -> Settings:
    architecture = checkpoint.metadata.get("general.architecture")
    if architecture not in GGUF_ARCHITECTURES:
        raise ConfigurationError(
            f"there is no reference for GGUF architecture {architecture!r}",
            file=checkpoint.path,
            hint="llama can be checked",
        )
    read = Reader(checkpoint.metadata, prefix="llama.")
    heads, hidden = read.integer("attention.head_count"), read.integer("embedding_length")
    head_dim = read.integer("attention.key_length", hidden // heads)
    _gguf_refuse(read, checkpoint, head_dim)
    settings = Settings(
        dialect="gguf",
        vocab=_gguf_vocab(checkpoint),
        hidden=hidden,
        inner=read.integer("feed_forward_length"),
        layers=read.integer("block_count"),
        heads=heads,
        kv_heads=read.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        eps=read.number("attention.layer_norm_rms_epsilon"),
        theta=read.number("rope.freq_base", 10000.0),
        factor=_gguf_factor(read),
        window=_gguf_window(read),
        tied="output.weight" not in checkpoint.tensors,
        biased=_gguf_biased(checkpoint),
    )
    _check(settings, read.problems, checkpoint, checkpoint.path)
    return settings


def _gguf_refuse(read: Reader, checkpoint: Checkpoint, head_dim: int) -> None:
    """Report what shares the architecture's name and computes something else."""
    read.only("expert_count", 0)
    read.only("attention.value_length", head_dim)
    read.only("rope.dimension_count", head_dim)
    read.only("rope.scaling.type", "none", "linear")
    if "rope_freqs.weight" in checkpoint.tensors:
        read.problems.append("rope_freqs.weight rescales positions, which is not supported")


def _gguf_vocab(checkpoint: Checkpoint) -> int:
    """Rows of the embedding; ``llama.vocab_size`` may be absent, and 1 stands in for no tensor."""
    embed = checkpoint.tensors.get("token_embd.weight")
    return embed.shape[0] if embed and embed.shape else 1


def _gguf_factor(read: Reader) -> float:
    """The scaling factor; older files keep it alone, as ``rope.scale_linear``."""
    if read.get("rope.scaling.type") == "linear":
        return read.number("rope.scaling.factor")
    return read.number("rope.scale_linear", 1.0)


def _gguf_window(read: Reader) -> int | None:
    """The window; 0 means none."""
    return (
        read.integer("attention.sliding_window") if read.get("attention.sliding_window") else None
    )


def _gguf_biased(checkpoint: Checkpoint) -> frozenset[str]:
    """Roles that have a bias in any layer; GGUF has no key for it."""
    ends = {role: NAMES["gguf"][role].rpartition("{}")[2] + ".bias" for role in (*ATTENTION, *MLP)}
    names = tuple(checkpoint.tensors)
    return frozenset(role for role, end in ends.items() if any(n.endswith(end) for n in names))


def _check(settings: Settings, problems: list[str], checkpoint: Checkpoint, file: Path) -> None:
    found = (
        (
            settings.heads % settings.kv_heads,
            f"{settings.heads} query heads do not share {settings.kv_heads} key heads evenly",
        ),
        (settings.head_dim % 2, f"a head of {settings.head_dim} cannot be rotated in planes"),
        (
            settings.layers > len(checkpoint.tensors),
            f"{settings.layers} layers are more than {len(checkpoint.tensors)} tensors can make",
        ),
    )
    problems = problems or [problem for wrong, problem in found if wrong]
    if problems:
        raise ConfigurationError(
            "the configuration cannot be used for a reference", file=file, problems=problems
        )
