"""Random configurations of families whose keys are those of GPT-2, or nearly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_options import (
    ACTIVATIONS,
    EPS,
    FLAGS,
    LONGEST,
    WINDOW,
    Config,
    Draw,
    renamed,
    without,
)


def _gpt(draw: Draw, heads: st.SearchStrategy[int], dims: st.SearchStrategy[int]) -> Config:
    """Sizes in the keys of GPT-2."""
    count = draw(heads)
    return {
        "n_embd": count * draw(dims),
        "n_head": count,
        "n_layer": draw(st.integers(1, 3)),
        "n_inner": draw(st.one_of(st.none(), st.integers(3, 37))),
        "n_positions": draw(st.integers(LONGEST, 64)),
        "vocab_size": draw(st.integers(11, 71)),
        "activation_function": draw(ACTIVATIONS),
        "layer_norm_epsilon": draw(EPS),
        "tie_word_embeddings": draw(FLAGS),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _gpt_bigcode(draw: Draw) -> Config:
    config = _gpt(draw, st.integers(2, 5), st.integers(2, 9))
    return config | {"multi_query": draw(FLAGS), "scale_attn_weights": draw(FLAGS)}


def _gptj(draw: Draw) -> Config:
    config = _gpt(draw, st.integers(1, 4), st.sampled_from([4, 6, 10]))
    dim = config["n_embd"] // config["n_head"]
    return config | {"rotary_dim": 2 * draw(st.integers(1, dim // 2))}


def _codegen(draw: Draw) -> Config:
    config = _gpt(draw, st.sampled_from([4, 8]), st.sampled_from([4, 6]))
    dim = config["n_embd"] // config["n_head"]
    return config | {"rotary_dim": 2 * draw(st.integers(1, dim // 2))}


def _gpt_neo(draw: Draw) -> Config:
    names = {
        "n_embd": "hidden_size",
        "n_head": "num_heads",
        "n_layer": "num_layers",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
    }
    config = renamed(_gpt(draw, st.integers(1, 5), st.integers(2, 9)), names)
    run = draw(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=2))
    times = draw(st.integers(1, 2))
    types = {"attention_types": [[run, times]], "num_layers": len(run) * times}
    return config | types | {"window_size": draw(WINDOW)}


def _opt(draw: Draw) -> Config:
    names = {
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_inner": "ffn_dim",
        "n_positions": "max_position_embeddings",
    }
    config = renamed(_gpt(draw, st.integers(1, 4), st.integers(2, 7)), names)
    return without(config, "layer_norm_epsilon") | {
        "ffn_dim": draw(st.integers(3, 37)),
        "do_layer_norm_before": draw(FLAGS),
        "_remove_final_layer_norm": draw(FLAGS),
        "word_embed_proj_dim": draw(st.one_of(st.none(), st.integers(3, 19))),
        "enable_bias": draw(FLAGS),
        "layer_norm_elementwise_affine": draw(FLAGS),
        "pad_token_id": 0,
    }


def _bloom(draw: Draw) -> Config:
    config = _gpt(draw, st.integers(1, 7), st.integers(2, 6))
    kept = without(config, "n_embd", "n_inner", "n_positions", "activation_function")
    return kept | {
        "hidden_size": config["n_embd"],
        "apply_residual_connection_post_layernorm": draw(FLAGS),
    }


def _mpt(draw: Draw) -> Config:
    names = {"n_head": "n_heads", "n_layer": "n_layers", "n_positions": "max_seq_len"}
    config = renamed(_gpt(draw, st.integers(1, 7), st.integers(2, 6)), names)
    table = {
        "clip_qkv": draw(st.one_of(st.none(), st.floats(0.3, 3.0))),
        "softmax_scale": draw(st.one_of(st.none(), st.floats(0.1, 1.0))),
    }
    kept = without(config, "n_embd", "n_inner", "activation_function")
    return kept | {"d_model": config["n_embd"], "attn_config": table}


GPT: Mapping[str, Callable[[Draw], Config]] = {
    "gpt_bigcode": _gpt_bigcode,
    "gptj": _gptj,
    "codegen": _codegen,
    "gpt_neo": _gpt_neo,
    "opt": _opt,
    "bloom": _bloom,
    "mpt": _mpt,
}
