"""Decoder settings from a config.json, a row for each ``model_type``.

Defaults are those of transformers 5.23 for keys that published configurations leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from maxtool.parity.decoder import names
from maxtool.parity.decoder.huggingface_rope import RopeKeys, read_rope
from maxtool.parity.decoder.mlp import ACTIVATIONS
from maxtool.parity.decoder.names import Names
from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.settings import (
    ATTENTION,
    EVERY,
    MLP,
    QKV,
    Experts,
    Settings,
    Sizes,
    check,
    layer_count,
)
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint

Options = dict[str, Any]
SLIDING = "sliding_attention"

KEYS = {
    "hidden": "hidden_size",
    "inner": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "eps": "rms_norm_eps",
    "activation": "hidden_act",
    "context": "max_position_embeddings",
}
"""Llama's key for each value that other families have elsewhere."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Which layers see a window of keys only.

    Attributes:
        default: The window where the key is absent; null is none.
        switch: Whether ``use_sliding_window`` must be true.
        listed: Whether ``layer_types`` says for which layers, if it is there.
        rule: Otherwise, from the configuration and a layer whether it has a window.
    """

    default: int | None = None
    switch: bool = False
    listed: bool = False
    rule: Callable[[Reader, int], bool] = lambda _, __: True


@dataclass(frozen=True, slots=True)
class Row:
    """How the configurations of one ``model_type`` are read.

    Attributes:
        names: What the tensors are called.
        fixed: Settings that all models of the family have in common.
        keys: For a value of :data:`KEYS` the family's own key.
        defaults: For a key what it means where it is absent.
        biased: Projections with a bias, whatever the configuration says.
        biases: For a key the projections that have a bias if it is true.
        windows: Which layers see a window; None if none does.
        rope: Where the rotary settings are; None without any.
        ropes: Makes the settings of each layer of them.
        only: For a key the values that compute what the reference does; the first is the default.
        more: Further settings, from the configuration, the sizes and the row's own.
        section: The part of the configuration that describes the text model.
    """

    names: Names
    fixed: Options = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    biased: tuple[str, ...] = ()
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    windows: Windows | None = None
    rope: RopeKeys | None = field(default_factory=RopeKeys)
    ropes: Callable[[Reader, Row, Sizes, tuple[bool, ...]], tuple[Rope | None, ...]] | None = None
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    more: Callable[[Reader, Sizes], Options] | None = None
    section: str | None = None

    def key(self, value: str) -> str:
        """The family's key for a value of :data:`KEYS`."""
        return self.keys.get(value, KEYS[value])


def read_settings(checkpoint: Checkpoint, model_type: str) -> Settings:
    """The settings of a Hugging Face folder.

    Raises:
        ConfigurationError: Listing everything that is missing, wrong or not supported.
    """
    row, config = ROWS[model_type], checkpoint.config or {}
    problems: list[str] = []
    if row.section is not None:
        config = {**config, **Reader(config, problems).section(row.section)}
    read = Reader({**row.defaults, **config}, problems)
    for key, allowed in {"quantization_config": (None,), **row.only}.items():
        read.only(key, *allowed)
    sizes = _sizes(read, row, checkpoint)
    sliding = _sliding(read, row, sizes.layers)
    options: Options = {
        "names": row.names,
        "sizes": sizes,
        "eps": read.number(row.key("eps")),
        "ropes": (row.ropes or _one_rope)(read, row, sizes, sliding),
        "windows": _windows(read, row, sliding),
        "biased": _biased(read, row),
        "tied": read.flag("tie_word_embeddings"),
        "activation": read.choice(row.key("activation"), ACTIVATIONS, "silu"),
    }
    options |= row.fixed | (row.more(read, sizes) if row.more else {})
    return check(Settings(**options), problems, checkpoint.config_file or checkpoint.path)


def _sizes(read: Reader, row: Row, checkpoint: Checkpoint) -> Sizes:
    heads, hidden = read.integer(row.key("heads")), read.integer(row.key("hidden"))
    return Sizes(
        vocab=read.integer("vocab_size"),
        hidden=hidden,
        inner=read.integer(row.key("inner"), 4 * hidden if "inner" in row.keys else None),
        layers=layer_count(read.integer(row.key("layers")), checkpoint, read.problems),
        heads=heads,
        kv_heads=read.integer(row.key("kv_heads"), heads),
        head_dim=read.integer(row.key("head_dim"), hidden // heads or 1),
    )


def _biased(read: Reader, row: Row) -> frozenset[str]:
    chosen = {role for key, roles in row.biases.items() if read.flag(key) for role in roles}
    return frozenset(chosen.union(row.biased))


def _sliding(read: Reader, row: Row, layers: int) -> tuple[bool, ...]:
    """For each layer whether it is of the kind that sees a window."""
    windows = row.windows
    if windows is None:
        return (False,) * layers
    kinds = read.get("layer_types") if windows.listed else None
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(kind == SLIDING for kind in kinds)
    if kinds is not None:
        read.problems.append(f"layer_types does not name the kind of {layers} layers")
    return tuple(windows.rule(read, layer) for layer in range(layers))


def _windows(read: Reader, row: Row, sliding: tuple[bool, ...]) -> tuple[int | None, ...]:
    windows = row.windows
    if windows is None or (windows.switch and not read.flag("use_sliding_window")):
        return (None,) * len(sliding)
    absent = "sliding_window" not in read.values
    window = windows.default if absent else read.get("sliding_window")
    size = None if window is None else read.integer("sliding_window", windows.default)
    return tuple(size if slides else None for slides in sliding)


def _one_rope(
    read: Reader, row: Row, sizes: Sizes, sliding: tuple[bool, ...]
) -> tuple[Rope | None, ...]:
    """The same rotation in every layer."""
    if row.rope is None:
        return (None,) * len(sliding)
    context = read.integer(row.key("context"))
    rope = read_rope(read, row.rope, head_dim=sizes.head_dim, context=context)
    return (rope,) * len(sliding)


def _gemma3_ropes(
    read: Reader, row: Row, sizes: Sizes, sliding: tuple[bool, ...]
) -> tuple[Rope | None, ...]:
    """A base for the layers with a window, another one, scaled, for those without."""
    context, nested = read.integer(row.key("context")), "rope_parameters" in read.values
    unscaled = {key: value for key, value in read.values.items() if key != "rope_scaling"}
    local = Reader(unscaled, read.problems)
    ropes = {
        slides: read_rope(
            local if slides else read,
            GEMMA3_LOCAL if slides else GEMMA3_GLOBAL,
            head_dim=sizes.head_dim,
            context=context,
            section=kind if nested else None,
        )
        for slides, kind in ((False, "full_attention"), (True, SLIDING))
    }
    return tuple(ropes[slides] for slides in sliding)


def _smollm3_ropes(
    read: Reader, row: Row, sizes: Sizes, sliding: tuple[bool, ...]
) -> tuple[Rope | None, ...]:
    """No rotation in some of the layers."""
    ropes = _one_rope(read, row, sizes, sliding)
    return tuple(rope if _rotates(read, layer) else None for layer, rope in enumerate(ropes))


def _rotates(read: Reader, layer: int) -> bool:
    """Whether a layer of SmolLM3 rotates: its list of layers says 1 for those that do."""
    listed = read.get("no_rope_layers")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer])
    return (layer + 1) % read.integer("no_rope_layer_interval", 4) != 0


def _mixtral(read: Reader, sizes: Sizes) -> Options:
    experts = Experts(
        count=read.integer("num_local_experts"),
        used=read.integer("num_experts_per_tok"),
        inner=sizes.inner,
        normalized=True,
        layers=(True,) * sizes.layers,
    )
    return {"experts": experts}


def _qwen3_moe(read: Reader, sizes: Sizes) -> Options:
    plain, step = read.get("mlp_only_layers") or (), read.integer("decoder_sparse_step", 1)
    if not isinstance(plain, list | tuple):
        read.problems.append("mlp_only_layers is not a list")
        plain = ()
    experts = Experts(
        # Transformers 5 writes the second one.
        count=read.integer("num_experts" if read.get("num_experts") else "num_local_experts"),
        used=read.integer("num_experts_per_tok"),
        inner=read.integer("moe_intermediate_size"),
        normalized=read.flag("norm_topk_prob"),
        layers=tuple(i not in plain and (i + 1) % step == 0 for i in range(sizes.layers)),
    )
    return {"experts": experts}


def _gemma(read: Reader, sizes: Sizes) -> Options:
    return {
        "embed_scale": sizes.hidden**0.5,
        "scale": read.number("query_pre_attn_scalar") ** -0.5,
        "attention_cap": read.optional_number("attn_logit_softcapping"),
        "logits_cap": read.optional_number("final_logit_softcapping"),
    }


def _granite(read: Reader, sizes: Sizes) -> Options:  # noqa: ARG001 - called as the others are
    return {
        "scale": read.number("attention_multiplier"),
        "embed_scale": read.number("embedding_multiplier"),
        "residual_scale": read.number("residual_multiplier"),
        "logits_scale": 1 / read.number("logits_scaling"),
    }


def _gpt2(read: Reader, sizes: Sizes) -> Options:
    scaled = read.flag("scale_attn_weights", default=True)
    return {
        "positions": read.integer("n_positions"),
        "scale": sizes.head_dim**-0.5 if scaled else 1.0,
    }


def _gpt_neox(read: Reader, sizes: Sizes) -> Options:  # noqa: ARG001 - called as the others are
    parallel = read.flag("use_parallel_residual", default=True)
    return {"block": "parallel" if parallel else "pre"}


def _falcon(read: Reader, sizes: Sizes) -> Options:
    """The forms differ in their norms, and in how many query heads share a key head."""
    newer = read.flag("new_decoder_architecture")
    two = newer and read.integer("num_ln_in_parallel_attn", 2) == 2
    parallel = newer or read.flag("parallel_attn", default=True)
    one_key = read.flag("multi_query", default=True)
    kv_heads = sizes.kv_heads if newer else 1 if one_key else sizes.heads
    return {
        "block": "parallel" if two else "parallel_shared" if parallel else "pre",
        "names": names.FALCON_TWO_NORMS if two else names.FALCON,
        "sizes": replace(sizes, kv_heads=kv_heads),
    }


def _late(read: Reader, layer: int) -> bool:
    return layer >= read.integer("max_window_layers", 28)


def _not_every(default: int) -> Callable[[Reader, int], bool]:
    """All layers but every so many have a window."""
    return lambda read, layer: (layer + 1) % read.integer("sliding_window_pattern", default) != 0


LLAMA_EPS, TIED = {"rms_norm_eps": 1e-6}, {"tie_word_embeddings": True}
ATTENTION_BIAS = {"attention_bias": ATTENTION}
GEMMA3_GLOBAL = RopeKeys(default_theta=1e6)
GEMMA3_LOCAL = RopeKeys(theta="rope_local_base_freq")
GEMMA: Options = {"norm_offset": 1.0, "block": "sandwich"}
GEMMA_DEFAULTS = (
    LLAMA_EPS
    | TIED
    | {
        "hidden_activation": "gelu_pytorch_tanh",
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
    }
)
LAYER_NORM: Options = {"norm": "layer", "gated": False}

GEMMA3 = Row(
    names.GEMMA,
    fixed=GEMMA | {"qk_norm": "head"},
    keys={"activation": "hidden_activation"},
    defaults=GEMMA_DEFAULTS
    | {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
    },
    biases=ATTENTION_BIAS,
    windows=Windows(4096, listed=True, rule=_not_every(6)),
    ropes=_gemma3_ropes,
    only={"use_bidirectional_attention": (False,), "attn_logit_softcapping": (None,)},
    more=_gemma,
)

ROWS: Mapping[str, Row] = {
    "llama": Row(names.LLAMA, defaults=LLAMA_EPS, biases=ATTENTION_BIAS | {"mlp_bias": MLP}),
    "mistral": Row(
        names.LLAMA,
        defaults=LLAMA_EPS | {"num_key_value_heads": 8, "max_position_embeddings": 131072},
        windows=Windows(4096),
    ),
    "mixtral": Row(
        names.MIXTRAL,
        defaults={
            "rms_norm_eps": 1e-5,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
        },
        windows=Windows(),
        rope=RopeKeys(default_theta=1e6),
        more=_mixtral,
    ),
    "qwen2": Row(
        names.LLAMA,
        defaults=LLAMA_EPS,
        biased=QKV,
        windows=Windows(4096, switch=True, listed=True, rule=_late),
    ),
    "qwen3": Row(
        names.LLAMA,
        fixed={"qk_norm": "head"},
        defaults=LLAMA_EPS | {"head_dim": 128},
        biases=ATTENTION_BIAS,
        windows=Windows(4096, switch=True, listed=True, rule=_late),
    ),
    "qwen3_moe": Row(
        names.QWEN3_MOE,
        fixed={"qk_norm": "head"},
        defaults=LLAMA_EPS,
        biases=ATTENTION_BIAS,
        windows=Windows(4096, switch=True),
        more=_qwen3_moe,
    ),
    "gemma2": Row(
        names.GEMMA,
        fixed=GEMMA,
        keys={"activation": "hidden_activation"},
        defaults=GEMMA_DEFAULTS | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        biases=ATTENTION_BIAS,
        windows=Windows(4096, listed=True, rule=_not_every(2)),
        only={"use_bidirectional_attention": (None, False)},
        more=_gemma,
    ),
    "gemma3_text": GEMMA3,
    "gemma3": replace(GEMMA3, section="text_config"),
    "phi3": Row(
        names.PHI3,
        defaults={"rms_norm_eps": 1e-5},
        windows=Windows(),
        rope=RopeKeys(
            partial="partial_rotary_factor",
            original=4096,
            renamed={"su": "longrope", "yarn": "longrope"},
        ),
        only={"attention_bias": (False,)},
    ),
    "gpt2": Row(
        names.GPT2,
        fixed=LAYER_NORM,
        keys={
            "hidden": "n_embd",
            "inner": "n_inner",
            "layers": "n_layer",
            "heads": "n_head",
            "eps": "layer_norm_epsilon",
            "activation": "activation_function",
            "context": "n_positions",
        },
        defaults=TIED | {"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
        biased=EVERY,
        rope=None,
        only={"scale_attn_by_inverse_layer_idx": (False,), "add_cross_attention": (False,)},
        more=_gpt2,
    ),
    "gpt_neox": Row(
        names.GPT_NEOX,
        fixed=LAYER_NORM,
        keys={"eps": "layer_norm_eps"},
        defaults={"layer_norm_eps": 1e-5, "hidden_act": "gelu", "attention_bias": True},
        biased=MLP,
        biases=ATTENTION_BIAS,
        rope=RopeKeys("rotary_emb_base", partial="rotary_pct", default_partial=0.25),
        more=_gpt_neox,
    ),
    "starcoder2": Row(
        names.STARCODER2,
        fixed=LAYER_NORM,
        keys={"eps": "norm_epsilon"},
        defaults=TIED | {"norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh", "use_bias": True},
        biases={"use_bias": EVERY},
        windows=Windows(),
    ),
    "olmo2": Row(
        names.OLMO2,
        fixed={"block": "post", "qk_norm": "full"},
        defaults={"rms_norm_eps": 1e-5},
        biases=ATTENTION_BIAS,
    ),
    "granite": Row(
        names.LLAMA,
        defaults=LLAMA_EPS
        | dict.fromkeys(
            (
                "attention_multiplier",
                "embedding_multiplier",
                "residual_multiplier",
                "logits_scaling",
            ),
            1.0,
        ),
        biases=ATTENTION_BIAS | {"mlp_bias": MLP},
        more=_granite,
    ),
    "smollm3": Row(
        names.LLAMA,
        defaults=LLAMA_EPS | TIED | {"num_key_value_heads": 4},
        biases=ATTENTION_BIAS | {"mlp_bias": MLP},
        windows=Windows(
            switch=True, listed=True, rule=lambda read, layer: not _rotates(read, layer)
        ),
        rope=RopeKeys(default_theta=2e6),
        ropes=_smollm3_ropes,
    ),
    "falcon": Row(
        names.FALCON,
        fixed=LAYER_NORM,
        keys={
            "inner": "ffn_hidden_size",
            "kv_heads": "num_kv_heads",
            "eps": "layer_norm_epsilon",
            "activation": "activation",
        },
        defaults=TIED
        | {"layer_norm_epsilon": 1e-5, "activation": "gelu", "max_position_embeddings": 2048},
        biases={"bias": EVERY},
        only={"alibi": (False,)},
        more=_falcon,
    ),
}
"""How each ``model_type`` is read."""
