"""What checkpoints call the tensors of a decoder: a table per family and dialect.

The roles are: ``embed``, ``position``, ``norm``, ``head``; per layer ``attn_norm``, ``q``, ``k``,
``v``, ``o``, ``q_norm``, ``k_norm``, ``attn_post_norm``, ``mlp_norm``, ``gate``, ``up``, ``down``,
``mlp_post_norm``; ``router`` and ``expert_gate``, ``expert_up``, ``expert_down`` for experts.
``qkv`` stands in a table for the three it joins, ``gate_up`` for two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one family in one dialect.

    Attributes:
        roles: Name of each role without ``.weight`` or ``.bias``; ``{}`` stands for the layer, and
            a second one for the expert. Experts without a second one are stacked in one tensor.
        bases: What may stand before all names but the head's; the first that fits is used.
        head: Name of the head.
        qkv: The order of rows in ``qkv``: all queries, keys, values; or for each key head its
            queries, its key, its value.
        transposed: Whether projections are stored [in, out].
    """

    roles: Mapping[str, str]
    bases: tuple[str, ...] = ("model.",)
    head: str = "lm_head"
    qkv: Literal["stacked", "grouped"] = "stacked"
    transposed: bool = False

    @property
    def expert_by_expert(self) -> bool:
        """Whether each expert has tensors of its own."""
        return self.roles.get("expert_gate", "").count("{}") > 1


def _layers(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    return {role: prefix + name for role, name in names.items()}


_MODEL = {"embed": "embed_tokens", "norm": "norm"}
_ATTENTION = _layers(
    "layers.{}.",
    {
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
    },
)
_PRE_NORMS = _layers(
    "layers.{}.", {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
)
_GATED = _layers("layers.{}.mlp.", {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"})
_LLAMA = _MODEL | _ATTENTION | _PRE_NORMS | _GATED

LLAMA = Names(_LLAMA)

MIXTRAL = Names(
    _MODEL
    | _ATTENTION
    | _PRE_NORMS
    | _layers(
        "layers.{}.block_sparse_moe.",
        {
            "router": "gate",
            "expert_gate": "experts.{}.w1",
            "expert_up": "experts.{}.w3",
            "expert_down": "experts.{}.w2",
        },
    )
)

QWEN3_MOE = Names(
    _LLAMA
    | _layers(
        "layers.{}.mlp.",
        {
            "router": "gate",
            "expert_gate": "experts.{}.gate_proj",
            "expert_up": "experts.{}.up_proj",
            "expert_down": "experts.{}.down_proj",
        },
    )
)

_POST_NORMS = _layers(
    "layers.{}.",
    {
        "attn_post_norm": "post_attention_layernorm",
        "mlp_post_norm": "post_feedforward_layernorm",
    },
)

OLMO2 = Names(_MODEL | _ATTENTION | _POST_NORMS | _GATED)

# The second base is how transformers 4 saved models that see images, the third transformers 5.
GEMMA = Names(
    _LLAMA | _POST_NORMS | _layers("layers.{}.", {"mlp_norm": "pre_feedforward_layernorm"}),
    bases=("model.", "language_model.model.", "model.language_model."),
)

PHI3 = Names(
    _MODEL
    | _PRE_NORMS
    | _layers(
        "layers.{}.",
        {
            "qkv": "self_attn.qkv_proj",
            "o": "self_attn.o_proj",
            "gate_up": "mlp.gate_up_proj",
            "down": "mlp.down_proj",
        },
    )
)

STARCODER2 = Names(
    _MODEL | _ATTENTION | _PRE_NORMS | _layers("layers.{}.mlp.", {"up": "c_fc", "down": "c_proj"})
)

# The first published GPT-2 has no base.
GPT2 = Names(
    {"embed": "wte", "position": "wpe", "norm": "ln_f"}
    | _layers(
        "h.{}.",
        {
            "attn_norm": "ln_1",
            "qkv": "attn.c_attn",
            "o": "attn.c_proj",
            "mlp_norm": "ln_2",
            "up": "mlp.c_fc",
            "down": "mlp.c_proj",
        },
    ),
    bases=("transformer.", ""),
    transposed=True,
)

GPT_NEOX = Names(
    {"embed": "embed_in", "norm": "final_layer_norm"}
    | _PRE_NORMS
    | _layers(
        "layers.{}.",
        {
            "qkv": "attention.query_key_value",
            "o": "attention.dense",
            "up": "mlp.dense_h_to_4h",
            "down": "mlp.dense_4h_to_h",
        },
    ),
    bases=("gpt_neox.",),
    head="embed_out",
    qkv="grouped",
)

_FALCON = {"embed": "word_embeddings", "norm": "ln_f"} | _layers(
    "h.{}.",
    {
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "qkv": "self_attention.query_key_value",
        "o": "self_attention.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
)

FALCON = Names(_FALCON, bases=("transformer.",), qkv="grouped")

FALCON_TWO_NORMS = Names(
    _FALCON | _layers("h.{}.", {"attn_norm": "ln_attn", "mlp_norm": "ln_mlp"}),
    bases=("transformer.",),
    qkv="grouped",
)

_GGUF = {"embed": "token_embd", "position": "position_embd", "norm": "output_norm"} | _layers(
    "blk.{}.",
    {
        "attn_norm": "attn_norm",
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "o": "attn_output",
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "attn_post_norm": "post_attention_norm",
        "mlp_norm": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "mlp_post_norm": "post_ffw_norm",
        "router": "ffn_gate_inp",
        "expert_gate": "ffn_gate_exps",
        "expert_up": "ffn_up_exps",
        "expert_down": "ffn_down_exps",
    },
)

GGUF = Names(_GGUF, bases=("",), head="output")

# What a file may have instead: the roles joined, their place in the joined tensor.
GGUF_QKV = {"qkv": "blk.{}.attn_qkv"}
GGUF_GATE_UP = {"gate_up": "blk.{}.ffn_up"}
GGUF_TWO_NORMS = {"attn_norm": "blk.{}.attn_norm_2", "mlp_norm": "blk.{}.attn_norm"}
