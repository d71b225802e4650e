"""Random configurations of BERT and its kin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from tests.data.random_options import (
    ACTIVATIONS,
    EPS,
    FLAGS,
    LONGEST,
    THETAS,
    WINDOW,
    Config,
    Draw,
    kinds,
    without,
)


def _encoder(draw: Draw, **options: st.SearchStrategy[Any]) -> Config:
    """Sizes that BERT and its kin share."""
    count = draw(st.integers(2, 4))
    config = {
        "vocab_size": draw(st.integers(20, 71)),
        "num_attention_heads": count,
        "hidden_size": count * draw(st.integers(2, 5)) * 2,
        "intermediate_size": draw(st.integers(3, 37)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "max_position_embeddings": draw(st.integers(LONGEST, 64)),
        "layer_norm_eps": draw(EPS),
        "type_vocab_size": draw(st.integers(2, 4)),
    }
    return config | {key: draw(strategy) for key, strategy in options.items()}


def _bert(draw: Draw) -> Config:
    return _encoder(draw, hidden_act=ACTIVATIONS, pad_token_id=st.integers(0, 5))


def _electra(draw: Draw) -> Config:
    config = _encoder(draw, hidden_act=ACTIVATIONS, pad_token_id=st.integers(0, 5))
    return config | {"embedding_size": draw(st.sampled_from([config["hidden_size"], 5, 12]))}


def _roberta(draw: Draw) -> Config:
    config = _encoder(draw, hidden_act=ACTIVATIONS, pad_token_id=st.integers(0, 5))
    longer = config["max_position_embeddings"] + config["pad_token_id"] + 1
    return config | {"max_position_embeddings": longer, "type_vocab_size": 1}


def _distilbert(draw: Draw) -> Config:
    found = _encoder(draw)
    return {
        "vocab_size": found["vocab_size"],
        "dim": found["hidden_size"],
        "hidden_dim": found["intermediate_size"],
        "n_heads": found["num_attention_heads"],
        "n_layers": found["num_hidden_layers"],
        "max_position_embeddings": found["max_position_embeddings"],
        "activation": draw(st.sampled_from(["gelu", "relu"])),
        "sinusoidal_pos_embds": draw(FLAGS),
    }


def _nomic_bert(draw: Draw) -> Config:
    table = {"rope_type": "default", "rope_theta": draw(THETAS)}
    return _encoder(draw) | {"rope_parameters": table}


def _modernbert(draw: Draw) -> Config:
    bases = {"full_attention": draw(THETAS), "sliding_attention": draw(THETAS)}
    tables = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
    config = _encoder(
        draw,
        hidden_activation=ACTIVATIONS,
        attention_bias=FLAGS,
        mlp_bias=FLAGS,
        norm_bias=FLAGS,
        local_attention=WINDOW,
        classifier_pooling=st.sampled_from(["cls", "mean"]),
        classifier_bias=FLAGS,
        classifier_activation=ACTIVATIONS,
    )
    layers = draw(st.integers(1, 5))
    config |= {"num_hidden_layers": layers, "norm_eps": config["layer_norm_eps"]}
    # Of numbers that mean the same the usual one, which is written for all of them.
    every = [each for each in (1, 2, 3, 4) if each == 3 or each < layers]
    listed: Config = {"global_attn_every_n_layers": draw(st.sampled_from(every))}
    if draw(FLAGS):
        listed = {"layer_types": kinds(draw, layers)}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    special |= {"cls_token_id": 1, "sep_token_id": 2}
    kept = without(config, "layer_norm_eps", "type_vocab_size")
    return kept | listed | special | {"rope_parameters": tables}


def _mpnet(draw: Draw) -> Config:
    config = _encoder(draw, hidden_act=ACTIVATIONS, pad_token_id=st.integers(0, 5))
    rows = {"relative_attention_num_buckets": draw(st.sampled_from([32, 32, 35]))}
    longer = {"max_position_embeddings": config["max_position_embeddings"] + 2}
    return without(config, "type_vocab_size") | longer | rows


def _deberta(draw: Draw) -> Config:
    terms = st.sampled_from([["c2p"], ["p2c"], ["p2c", "c2p"], ["p2c", "c2p"], [], None])
    config = _encoder(
        draw,
        hidden_act=ACTIVATIONS,
        pad_token_id=st.integers(0, 5),
        relative_attention=st.sampled_from([True, True, True, False]),
        pos_att_type=terms,
        position_buckets=st.sampled_from([-1, 6, 16]),
        max_relative_positions=st.sampled_from([-1, 12, 30]),
        share_att_key=FLAGS,
        norm_rel_ebd=st.sampled_from(["none", "layer_norm", "layer_norm|other"]),
        position_biased_input=FLAGS,
        conv_kernel_size=st.sampled_from([0, 0, 3, 5]),
        conv_groups=st.sampled_from([1, 2]),
        conv_act=st.sampled_from(["tanh", "gelu", "gelu_new", "relu", "silu"]),
        type_vocab_size=st.sampled_from([0, 2, 3]),
    )
    return config | {"embedding_size": draw(st.sampled_from([config["hidden_size"], 5, 12]))}


def _gte(draw: Draw) -> Config:
    kinds_of_types = st.sampled_from([0, 1, 3])
    config = _encoder(draw, hidden_act=ACTIVATIONS, pad_token_id=st.integers(0, 5))
    table: Config = {"rope_type": "default", "rope_theta": draw(THETAS)}
    if draw(FLAGS):
        table |= {"rope_type": "linear", "factor": draw(st.sampled_from([1.5, 8.0]))}
    return config | {"type_vocab_size": draw(kinds_of_types), "rope_parameters": table}


OF_WORDS: Mapping[str, Callable[[Draw], Config]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "nomic_bert": _nomic_bert,
    "modernbert": _modernbert,
    "electra": _electra,
    "mpnet": _mpnet,
    "deberta-v2": _deberta,
    "gte": _gte,
}
