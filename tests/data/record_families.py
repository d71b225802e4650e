"""Make a tiny checkpoint of each family of language models, and record what transformers computes.

Needs the ``peers`` extra (torch, transformers). Weights are random with a fixed seed.
``config.json`` is in the spelling that published checkpoints of the family have,
``config.newer.json`` as transformers 5 writes it; both must give the same outputs.

    python tests/data/record_families.py [NAME ...]
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recording import SEED, Unclear, load, logits, randomize, record, write_json
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).parent
SEEDS = range(SEED, SEED + 50)
Config = dict[str, Any]


@dataclass(frozen=True)
class Tiny:
    """One checkpoint.

    Attributes:
        config: What its configuration class is called with, beside what all have.
        published: Keys of the published spelling that are not only renamed; None drops one.
        norm: What the weights of its norms are centred on.
        sequence: Tokens of the recorded logits.
        prompt: Tokens that the greedy continuation follows.
    """

    model_type: str
    config: Config
    published: Config = field(default_factory=dict)
    norm: float = 1.0
    sequence: int = 24
    prompt: int = 8


def sizes(hidden: int, heads: int, kv_heads: int, **others: Any) -> Config:
    """The keys that most families share."""
    return {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **others,
    }


def rope(theta: float = 10000.0, kind: str = "default", **others: Any) -> Config:
    """``rope_parameters`` as transformers 5 has them."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **others}}


GEMMA3_TEXT = (
    sizes(24, 4, 2, head_dim=10, intermediate_size=44, vocab_size=61, num_hidden_layers=3)
    | {"sliding_window": 7, "query_pre_attn_scalar": 10, "tie_word_embeddings": True}
    | {"sliding_window_pattern": 2, "max_position_embeddings": 128, "pad_token_id": 0}
    | {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        }
    }
)
# Published configurations leave out what has its usual value; here nothing has.
GEMMA3_TEXT_PUBLISHED = {
    "model_type": "gemma3_text",
    **{
        key: GEMMA3_TEXT[key]
        for key in (
            "head_dim",
            "hidden_size",
            "intermediate_size",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "num_key_value_heads",
            "query_pre_attn_scalar",
            "sliding_window",
            "sliding_window_pattern",
            "vocab_size",
        )
    },
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
}
VISION = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 28,
    "patch_size": 14,
    "model_type": "siglip_vision_model",
}

SHORT = [1.0, 1.1, 1.25, 1.4, 1.7, 2.0]
LONG = [1.0, 1.5, 2.2, 3.0, 4.5, 6.0]
FALCON = {"hidden_size": 24, "vocab_size": 61, "alibi": False}

FAMILIES: Mapping[str, Tiny] = {
    "tiny-llama3": Tiny(
        "llama",
        sizes(24, 4, 2, intermediate_size=44, vocab_size=61, max_position_embeddings=128)
        | {"head_dim": 16}
        | rope(
            500.0,
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        ),
        sequence=64,
    ),
    "tiny-yarn": Tiny(
        "llama",
        sizes(32, 2, 1, intermediate_size=44, vocab_size=61, max_position_embeddings=128)
        | rope(1000.0, "yarn", factor=4.0, original_max_position_embeddings=32),
        sequence=64,
    ),
    "tiny-dynamic": Tiny(
        "llama",
        sizes(24, 3, 3, intermediate_size=44, vocab_size=61, max_position_embeddings=16)
        | rope(10000.0, "dynamic", factor=4.0),
        sequence=48,
    ),
    "tiny-mixtral": Tiny(
        "mixtral",
        sizes(28, 6, 2, head_dim=8, intermediate_size=36, vocab_size=61)
        | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": None}
        | rope(1e6),
    ),
    "tiny-qwen2": Tiny(
        "qwen2",
        sizes(28, 7, 1, intermediate_size=44, vocab_size=61, num_hidden_layers=3)
        | {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
        | {"tie_word_embeddings": True}
        | rope(1e6),
        {"layer_types": None},
    ),
    "tiny-qwen3": Tiny(
        "qwen3",
        sizes(24, 3, 1, head_dim=12, intermediate_size=44, vocab_size=61) | rope(1e6),
        {"layer_types": None},
    ),
    "tiny-qwen3-moe": Tiny(
        "qwen3_moe",
        sizes(24, 4, 2, head_dim=8, intermediate_size=44, vocab_size=61, num_hidden_layers=3)
        | {"moe_intermediate_size": 20, "num_experts": 5, "num_experts_per_tok": 2}
        | {"mlp_only_layers": [1], "norm_topk_prob": True}
        | rope(1e6),
        {"num_experts": 5, "num_local_experts": None},
    ),
    "tiny-qwen3-moe-all": Tiny(
        "qwen3_moe",
        sizes(24, 4, 2, head_dim=8, intermediate_size=44, vocab_size=61)
        | {"moe_intermediate_size": 20, "num_experts": 4, "num_experts_per_tok": 2}
        | {"norm_topk_prob": True}
        | rope(1e6),
        {"num_experts": 4, "num_local_experts": None},
    ),
    "tiny-gemma2": Tiny(
        "gemma2",
        sizes(24, 2, 1, head_dim=14, intermediate_size=44, vocab_size=61, num_hidden_layers=3)
        | {"sliding_window": 7, "query_pre_attn_scalar": 10, "tie_word_embeddings": True}
        | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
        | rope(),
        {
            "layer_types": None,
            "hidden_act": "gelu_pytorch_tanh",
            "cache_implementation": "hybrid",
            "tie_word_embeddings": None,
        },
        norm=0.0,
    ),
    "tiny-gemma3": Tiny(
        "gemma3_text",
        sizes(24, 4, 2, head_dim=10, intermediate_size=44, vocab_size=61, num_hidden_layers=4)
        | {"sliding_window": 7, "query_pre_attn_scalar": 12, "tie_word_embeddings": True}
        | {"sliding_window_pattern": 3, "max_position_embeddings": 128}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            }
        },
        {
            "layer_types": None,
            "tie_word_embeddings": None,
            "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"factor": 4.0, "rope_type": "linear"},
            "_sliding_window_pattern": None,
            "sliding_window_pattern": 3,
        },
        norm=0.0,
        sequence=32,
    ),
    "tiny-gemma3-vision": Tiny(
        "gemma3",
        {"text_config": GEMMA3_TEXT, "vision_config": VISION, "mm_tokens_per_image": 4}
        | {"image_token_index": 0, "boi_token_index": 1, "eoi_token_index": 2},
        {"text_config": GEMMA3_TEXT_PUBLISHED, "vision_config": VISION},
        norm=0.0,
        sequence=32,
    ),
    "tiny-phi3": Tiny(
        "phi3",
        sizes(24, 4, 2, intermediate_size=44, vocab_size=61)
        | {"sliding_window": 7, "pad_token_id": 0, "original_max_position_embeddings": 64}
        | rope(),
        {"attention_bias": False},
    ),
    "tiny-phi3-longrope": Tiny(
        "phi3",
        sizes(32, 2, 1, intermediate_size=44, vocab_size=61, max_position_embeddings=64)
        | {"original_max_position_embeddings": 16, "pad_token_id": 0}
        | {"tie_word_embeddings": True}
        | rope(
            kind="longrope",
            partial_rotary_factor=0.75,
            short_factor=SHORT,
            long_factor=LONG,
        ),
        {
            "attention_bias": False,
            "original_max_position_embeddings": 16,
            "partial_rotary_factor": 0.75,
            "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
        },
        sequence=40,
        prompt=20,
    ),
    "tiny-gpt2": Tiny(
        "gpt2",
        {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 64, "vocab_size": 61},
        {"n_ctx": 64},
    ),
    "tiny-gpt-neox": Tiny(
        "gpt_neox",
        {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 44, "vocab_size": 61}
        | rope(partial_rotary_factor=0.5),
        {"rotary_pct": 0.5, "rotary_emb_base": 10000, "rope_theta": None, "rope_scaling": None},
    ),
    "tiny-starcoder2": Tiny(
        "starcoder2",
        sizes(24, 3, 1, intermediate_size=44, vocab_size=61)
        | {"sliding_window": 7, "tie_word_embeddings": True}
        | rope(1e5),
        {"mlp_type": "default", "norm_type": "layer_norm", "tie_word_embeddings": None},
    ),
    "tiny-olmo2": Tiny(
        "olmo2", sizes(24, 4, 2, intermediate_size=44, vocab_size=61) | rope(500000.0)
    ),
    "tiny-granite": Tiny(
        "granite",
        sizes(24, 4, 2, intermediate_size=44, vocab_size=61)
        | {"attention_multiplier": 0.3, "embedding_multiplier": 6.0, "logits_scaling": 4.0}
        | {"residual_multiplier": 0.4, "tie_word_embeddings": True}
        | rope(),
    ),
    "tiny-smollm3": Tiny(
        "smollm3",
        sizes(24, 4, 1, intermediate_size=44, vocab_size=61, num_hidden_layers=4)
        | {"tie_word_embeddings": True, "pad_token_id": 0}
        | rope(5000.0),
    ),
    "tiny-falcon": Tiny(
        "falcon",
        {**FALCON, "num_attention_heads": 3, "multi_query": True, "bias": False} | rope(),
        {"apply_residual_connection_post_layernorm": False, "num_kv_heads": None},
    ),
    "tiny-falcon-new": Tiny(
        "falcon",
        {**FALCON, "num_attention_heads": 4, "num_kv_heads": 2, "bias": False}
        | {"new_decoder_architecture": True}
        | rope(),
    ),
    "tiny-falcon-rw": Tiny(
        "falcon",
        {**FALCON, "num_attention_heads": 4, "multi_query": False, "bias": True}
        | {"parallel_attn": False}
        | rope(),
        {"num_kv_heads": None},
    ),
}


def configuration(tiny: Tiny) -> Any:
    """Its configuration object; what the family does not know is left out."""
    usual = {"num_hidden_layers": 2, "max_position_embeddings": 64, "tie_word_embeddings": False}
    if tiny.model_type in ("gpt2", "gemma3"):
        usual = {}
    return AutoConfig.for_model(
        tiny.model_type, **(usual | {"bos_token_id": 1, "eos_token_id": 2} | tiny.config)
    )


def published(newer: Config, tiny: Tiny) -> Config:
    """The same configuration in the keys of transformers 4, as most checkpoints still have it."""
    older = dict(newer)
    scaling = dict(older.pop("rope_parameters", None) or {})
    if "rope_theta" in scaling:
        older["rope_theta"] = scaling.pop("rope_theta")
        kind = scaling.pop("rope_type")
        scaling.pop("partial_rotary_factor", None)
        # The key's name changed when Llama 3.1 came.
        key = "rope_type" if kind == "llama3" else "type"
        older["rope_scaling"] = None if kind == "default" else {**scaling, key: kind}
    older["torch_dtype"] = older.pop("dtype")
    older["transformers_version"] = "4.44.2"
    older |= tiny.published
    dropped = {key for key, value in tiny.published.items() if value is None}
    return {key: older[key] for key in sorted(older) if key not in dropped}


def make(name: str, tiny: Tiny, seed: int) -> None:
    """Write the folder anew.

    Raises:
        Unclear: If this seed gives a greedy token that is not the clear winner.
    """
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(configuration(tiny)).to(torch.float32).eval()
    randomize(model, tiny.norm)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = folder / "config.json"
    newer = json.loads(config.read_text())
    write_json(config, newer)
    shutil.copy(config, folder / "config.newer.json")
    ids = 3 + np.arange(tiny.sequence)[None] % 58
    before = logits(load(folder), ids)
    write_json(config, published(newer, tiny))
    if not np.array_equal(before, logits(load(folder), ids)):
        raise SystemExit(f"{name}: the two spellings do not say the same")
    record(folder, seed=seed, sequence=tiny.sequence, prompt=tiny.prompt)


def main(names: list[str]) -> None:
    """Make the named checkpoints, or all."""
    torch.set_num_threads(1)
    for name in names or FAMILIES:
        for seed in SEEDS:
            try:
                make(name, FAMILIES[name], seed)
            except Unclear as error:
                print(f"{name}: seed {seed}: {error}")
            else:
                print(name)
                break


if __name__ == "__main__":
    main(sys.argv[1:])
