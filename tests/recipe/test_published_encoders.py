"""Configurations of encoders as they are published, with keys that change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, resolve_config, written_keys
from maxtool.weights import open_checkpoint

COMMON = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
}
BASE = COMMON | {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
}
# Keys of its authors' own code.
NOMIC = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertModel"],
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "causal": False,
    "dense_seq_output": True,
    "embd_pdrop": 0.0,
    "eos_token_id": None,
    "fused_bias_fc": True,
    "fused_dropout_add_ln": True,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 8192,
    "pad_vocab_size_multiple": 64,
    "parallel_block": False,
    "parallel_block_tied_norm": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": 2,
    "scale_attn_weights": True,
    "summary_first_dropout": 0.0,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "torch_dtype": "float32",
    "transformers_version": "4.34.0",
    "type_vocab_size": 2,
    "use_cache": True,
    "use_flash_attn": True,
    "use_rms_norm": False,
    "use_xentropy": True,
    "vocab_size": 30528,
}
# Keys of the first release of the class.
MODERN = {
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 50281,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 50281,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 50282,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 1152,
    "layer_norm_eps": 1e-05,
    "local_attention": 128,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "model_type": "modernbert",
    "norm_bias": False,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "pad_token_id": 50283,
    "position_embedding_type": "absolute",
    "reference_compile": True,
    "sep_token_id": 50282,
    "sparse_pred_ignore_index": -100,
    "sparse_prediction": False,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "transformers_version": "4.47.0.dev0",
    "vocab_size": 50368,
}
DEBERTA = BASE | {
    "layer_norm_eps": 1e-07,
    "max_position_embeddings": 512,
    "max_relative_positions": -1,
    "model_type": "deberta-v2",
    "norm_rel_ebd": "layer_norm",
    "pad_token_id": 0,
    "pooler_dropout": 0,
    "pooler_hidden_act": "gelu",
    "pooler_hidden_size": 768,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "position_buckets": 256,
    "relative_attention": True,
    "share_att_key": True,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
DISTANCES = {"distance_limit": 512, "distance_buckets": 256, "distance_terms": ("c2p", "p2c")}
# Name to the configuration, the recipe, and some fields.
GTE: dict[str, Any] = {
    "architectures": ["NewModel"],
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "max_position_embeddings": 8192,
    "model_type": "new",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pack_qkv": True,
    "pad_token_id": 1,
    "position_embedding_type": "rope",
    "rope_scaling": {"factor": 8.0, "type": "ntk"},
    "rope_theta": 20000,
    "torch_dtype": "float16",
    "transformers_version": "4.39.1",
    "type_vocab_size": 1,
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
    "vocab_size": 250048,
}
PUBLISHED: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "bert-base-multilingual-cased": (
        BASE
        | {
            "architectures": ["BertForMaskedLM"],
            "directionality": "bidi",
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512,
            "model_type": "bert",
            "pad_token_id": 0,
            "pooler_fc_size": 768,
            "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3,
            "pooler_size_per_head": 128,
            "pooler_type": "first_token_transform",
            "type_vocab_size": 2,
            "vocab_size": 119547,
        },
        "bert",
        {"context_length": 512, "head_dim": 64, "token_types": 2, "pad_token_id": None},
    ),
    "bge-small-en-v1.5": (
        BASE
        | {
            "_name_or_path": "/root/.cache/torch/sentence_transformers/BAAI_bge-small-en/",
            "architectures": ["BertModel"],
            "classifier_dropout": None,
            "hidden_size": 384,
            "id2label": {"0": "LABEL_0"},
            "intermediate_size": 1536,
            "label2id": {"LABEL_0": 0},
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512,
            "model_type": "bert",
            "pad_token_id": 0,
            "position_embedding_type": "absolute",
            "torch_dtype": "float32",
            "transformers_version": "4.30.0",
            "type_vocab_size": 2,
            "use_cache": True,
            "vocab_size": 30522,
        },
        "bert",
        {"hidden_size": 384, "head_dim": 32},
    ),
    "roberta-base": (
        BASE
        | {
            "architectures": ["RobertaForMaskedLM"],
            "bos_token_id": 0,
            "eos_token_id": 2,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 514,
            "model_type": "roberta",
            "pad_token_id": 1,
            "type_vocab_size": 1,
            "vocab_size": 50265,
        },
        "roberta",
        {"context_length": 512, "position_offset": 2, "pad_token_id": 1, "token_types": 1},
    ),
    "multilingual-e5-base": (
        BASE
        | {
            "architectures": ["XLMRobertaModel"],
            "bos_token_id": 0,
            "classifier_dropout": None,
            "eos_token_id": 2,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 514,
            "model_type": "xlm-roberta",
            "output_past": True,
            "pad_token_id": 1,
            "position_embedding_type": "absolute",
            "torch_dtype": "float32",
            "transformers_version": "4.29.0",
            "type_vocab_size": 1,
            "use_cache": True,
            "vocab_size": 250002,
        },
        "roberta",
        {"vocab_size": 250002, "context_length": 512},
    ),
    "nomic-embed-text-v1": (
        NOMIC,
        "nomic_bert",
        {"hidden_size": 768, "context_length": 2048, "rope_theta": 1000.0, "qkv_bias": False},
    ),
    "electra-small-discriminator": (
        BASE
        | {
            "architectures": ["ElectraForPreTraining"],
            "embedding_size": 128,
            "hidden_size": 256,
            "intermediate_size": 1024,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 512,
            "model_type": "electra",
            "num_attention_heads": 4,
            "pad_token_id": 0,
            "summary_activation": "gelu",
            "summary_last_dropout": 0.1,
            "summary_type": "first",
            "summary_use_proj": True,
            "type_vocab_size": 2,
            "vocab_size": 30522,
        },
        "electra",
        {"embedding_size": 128, "hidden_size": 256, "head_dim": 64},
    ),
    "all-mpnet-base-v2": (
        BASE
        | {
            "_name_or_path": "microsoft/mpnet-base",
            "architectures": ["MPNetForMaskedLM"],
            "bos_token_id": 0,
            "eos_token_id": 2,
            "layer_norm_eps": 1e-05,
            "max_position_embeddings": 514,
            "model_type": "mpnet",
            "pad_token_id": 1,
            "relative_attention_num_buckets": 32,
            "transformers_version": "4.8.2",
            "vocab_size": 30527,
        },
        "mpnet",
        {"context_length": 512, "position_offset": 2, "relative_rows": 32, "token_types": 0},
    ),
    "deberta-v3-base": (
        DEBERTA,
        "deberta_v2",
        DISTANCES | {"position": "none", "distance_shared": True, "distance_norm": True},
    ),
    "mdeberta-v3-base": (
        {key: value for key, value in DEBERTA.items() if not key.startswith("pooler")}
        | {"vocab_size": 251000},
        "deberta_v2",
        DISTANCES | {"conv_taps": None, "token_types": 0, "embedding_size": 768},
    ),
    "deberta-v2-xlarge": (
        DEBERTA
        | {
            "attention_head_size": 64,
            "conv_act": "gelu",
            "conv_kernel_size": 3,
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_attention_heads": 24,
            "num_hidden_layers": 24,
            "pooler_hidden_size": 1536,
            "pos_att_type": ["p2c", "c2p"],
        },
        "deberta_v2",
        DISTANCES | {"head_dim": 64, "conv_taps": 3, "conv_act": "gelu", "norm_eps": 1e-07},
    ),
    "gte-multilingual-base": (
        GTE,
        "gte_new",
        {
            "rope_theta": 160000.0,
            "rope_factor": 8.0 ** (2 / 64),
            "vocab_size": 250048,
            "context_length": 8192,
            "token_types": 1,
            "mlp_bias": False,
            "down_bias": True,
        },
    ),
    "gte-base-en-v1.5": (
        GTE
        | {
            "rope_scaling": {"factor": 2.0, "type": "ntk"},
            "rope_theta": 500000,
            "type_vocab_size": 0,
            "unpad_inputs": True,
            "vocab_size": 30528,
        },
        "gte_new",
        {"rope_theta": 1e6, "rope_factor": 2.0 ** (2 / 64), "token_types": 0},
    ),
    "ModernBERT-base": (
        MODERN,
        "modernbert",
        {
            "rope_theta": 160000.0,
            "rope_local_theta": 10000.0,
            "sliding_layers": tuple(layer % 3 != 0 for layer in range(22)),
            "sliding_window": 128,
            "classifier_pooling": "mean",
        },
    ),
    "distilbert-base-uncased": (
        {
            "activation": "gelu",
            "architectures": ["DistilBertForMaskedLM"],
            "attention_dropout": 0.1,
            "dim": 768,
            "dropout": 0.1,
            "hidden_dim": 3072,
            "initializer_range": 0.02,
            "max_position_embeddings": 512,
            "model_type": "distilbert",
            "n_heads": 12,
            "n_layers": 6,
            "pad_token_id": 0,
            "qa_dropout": 0.1,
            "seq_classif_dropout": 0.2,
            "sinusoidal_pos_embds": False,
            "tie_weights_": True,
            "transformers_version": "4.10.0.dev0",
            "vocab_size": 30522,
        },
        "distilbert",
        {"n_layers": 6, "head_dim": 64, "token_types": 0},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_pass(tmp_path: Path, name: str) -> None:
    config, recipe, fields = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert find_recipe(checkpoint).name == recipe
    found = resolve_config(find_recipe(checkpoint), checkpoint)
    assert not found.notes
    assert {field: found.values[field] for field in fields} == fields
    assert EncoderConfig(**found.values).problems() == []


@pytest.mark.parametrize(
    "change", [{"hidden_activation": "relu"}, {"hidden_activation": "gelu_new"}, {"mlp_bias": True}]
)
def test_what_llama_cpp_cannot_compute(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODERN | change))
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    recipe = find_recipe(checkpoint)
    values = resolve_config(recipe, checkpoint).values
    assert written_keys(recipe, "hf", values)
    with pytest.raises(ConfigurationError) as error:
        written_keys(recipe, "gguf", values)
    assert "has no spelling in gguf" in str(error.value)
