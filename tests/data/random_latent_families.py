"""Random configurations of families with latent attention, as ``random_families.py`` has others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_expert_families import grouped
from tests.data.random_families import SILU
from tests.data.random_options import FLAGS, Config, Draw, usual, without

RANKS = st.integers(2, 17)
WIDTHS = st.integers(1, 9)


def _latent(draw: Draw, **options: st.SearchStrategy[object]) -> Config:
    """A configuration with latents, whose heads have as many of keys as of queries."""
    config = usual(
        draw,
        attention_bias=FLAGS,
        kv_lora_rank=RANKS,
        q_lora_rank=st.none() | RANKS,
        qk_nope_head_dim=WIDTHS,
        v_head_dim=WIDTHS,
        **options,
    )
    turned, count = config["head_dim"], config["num_attention_heads"]
    config |= {"qk_rope_head_dim": turned, "hidden_size": 2 * count * draw(st.integers(1, 6))}
    return without(config, "head_dim") | {"num_key_value_heads": count}


def _in_groups(draw: Draw, config: Config) -> Config:
    config = grouped(draw, config)
    first = min(config["first_k_dense_replace"], config["num_hidden_layers"])
    return config | {"first_k_dense_replace": first}


def _deepseek_v3(draw: Draw) -> Config:
    # None is saved, of those that predict further tokens.
    return _in_groups(draw, _latent(draw)) | {"num_nextn_predict_layers": 0}


def _deepseek_v2(draw: Draw) -> Config:
    config = _in_groups(draw, _latent(draw, mlp_bias=FLAGS)) | {"norm_topk_prob": False}
    # Transformers takes pairs for complex numbers, which begin at even places.
    config |= {key: 2 * config[key] for key in ("kv_lora_rank", "qk_nope_head_dim")}
    return config | {"topk_method": "group_limited_greedy" if config["n_group"] > 1 else "greedy"}


def _glm4_moe_lite(draw: Draw) -> Config:
    config = without(_deepseek_v3(draw), "first_k_dense_replace")
    layers = config["num_hidden_layers"]
    listed = draw(st.lists(st.sampled_from(["dense", "sparse"]), min_size=layers, max_size=layers))
    return config | ({"mlp_layer_types": listed} if draw(FLAGS) else {})


def _minicpm3(draw: Draw) -> Config:
    config = _latent(
        draw,
        mlp_bias=FLAGS,
        scale_emb=st.sampled_from([1, 2.5, 12]),
        scale_depth=st.none() | st.floats(0.5, 3.0),
        dim_model_base=st.none() | st.integers(1, 9),
    )
    return config | ({"v_head_dim": None} if draw(FLAGS) else {})


LATENT: Mapping[str, Callable[[Draw], Config]] = {
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "glm4_moe_lite": _glm4_moe_lite,
    "minicpm3": _minicpm3,
}
_GRANTED = SILU | {"attention_bias": False, "rms_norm_eps": 1e-6}
LATENT_GRANTED: Mapping[str, Config] = {
    "deepseek_v2": _GRANTED | {"mlp_bias": False},
    "deepseek_v3": _GRANTED,
    "glm4_moe_lite": _GRANTED,
    "minicpm3": _GRANTED
    | {"mlp_bias": False, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}
    | {"q_lora_rank": 7, "v_head_dim": None},
}
