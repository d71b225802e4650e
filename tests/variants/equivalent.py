"""Damage to recipes that no recording can show, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

EQUIVALENT: Mapping[str, tuple[str, ...]] = {
    "llama.cpp's converter writes other numbers than a GLM's, so that no GGUF file is recorded": (
        "glm * match/gguf*",
    ),
    "tests/parity/test_dense_layers.py compares what such layers compute": (
        "_dense * weights/*",
        "gemma_embedding * weights/*/dense.*",
    ),
    "what a layer takes is what the one before it gives": (
        "gemma_embedding swap config/dense_features/gguf/keys/1 with 2",
    ),
    "tests/recipe/test_gpt_oss.py compares it with the numbers that its blocks mean": (
        "gpt_oss_mxfp4 * weights*",
    ),
    "tests/recipe/test_qwen3_5.py compares it with what was recorded of texts": (
        "qwen3_5 * weights/hf/rename*",
        "_delta_net * weights/hf/drop/1*",
        "_delta_net drop weights/hf/drop/1",
        "qwen3_5*_vision * aside/hf/tensors*",
        "qwen3_5_moe_fused * weights*",
        "qwen3_5_moe_fused * match/hf/requires*",
    ),
    "a folder of which GGUF has no form is written with the configuration that it has": (
        "bitnet * constants/hf*",
        "codegen * constants/hf*",
        "cwm * constants/hf*",
        "deberta_v2 * constants/hf*",
        "electra * constants/hf*",
        "flex_olmo * constants/hf*",
        "gpt_neo * constants/hf*",
        "gptj * constants/hf*",
        "gte* * constants/hf*",
        "helium * constants/hf*",
        "hyperclovax * constants/hf*",
        "ministral * constants/hf*",
        "mpnet * constants/hf*",
        "nanochat * constants/hf*",
        "opt * constants/hf*",
        "persimmon * constants/hf*",
        "vaultgemma * constants/hf*",
        "xglm * constants/hf*",
        "xglm swap config/*/hf/keys/0 with 1",
    ),
    "tests/recipe/test_published.py looks for what is written, and for what is refused": (
        "granitehybrid * constants/hf*",
        "mamba swap config/*/hf/keys/0* with 1",
        "mamba drop expect/gguf/{arch}.ssm.dt_b_c_rms",
        "falcon_mamba drop expect/gguf*",
    ),
    "transformers' classes of such models take it for granted": (
        "_seq2seq drop constants/hf/is_encoder_decoder",
    ),
    "tests/conversion/test_seq2seq.py has files of both, and of one alone": ("umt5 * match/gguf*",),
    "llama.cpp's converter writes it in every file": ("mt5 drop config/start_token/optional",),
    "published configurations have the other of its two spellings": (
        "llama4_vision * aside/hf/keys/2*",
    ),
    "tests/recipe/test_image_positions.py has files that say it, and that say otherwise": (
        "qwen3_vl* * expect/hf/rope_*",
        "qwen3_vl* * constants/gguf/{arch}.*",
        "qwen3_vl* * constants/hf/*",
        "qwen3_vl* drop constants/hf",
        "qwen3_vl* * config/sliding_*",
        "qwen2_vl * config/head_dim*",
        "qwen2_vl_vision drop weights/hf/rename*",
        "qwen2_vl * expect/hf/use_mrope*",
    ),
    "tests/recipe/test_dots1.py has configurations without that key": (
        "dots1 drop config/sliding_layers/hf/default",
    ),
    "the last key of an order comes last without it": (
        "cohere2_moe * order/gguf/25*",
        "granite_swa * order/gguf/25*",
        "lfm2_moe drop order/gguf/23",
        "mellum * order/gguf/21*",
    ),
    "tests/recipe/test_mellum.py has files of these, and looks for what is refused": (
        "mellum * config/sliding_layers/gguf/*",
        "mellum * config/sliding_window/hf/codec*",
        "mellum * expect/hf/num_*",
        "mellum * expect/hf/rope_parameters.sliding_attention.rope_type*",
        "mellum * constants/hf/rope_parameters.sliding_attention.rope_type*",
        "mellum * weights/hf/drop*",
    ),
    "llama.cpp has no layers without experts": ("mellum set config/expert_layers/gguf/codec to *",),
    "transformers reads either of two keys, and the first is written": (
        "mellum swap config/n_experts/hf/keys/0 with 1",
        "qwen3_vl_moe swap config/n_experts/hf/keys/0 with 1",
    ),
    "tests/recipe/test_cohere2_moe.py has configurations and files of these": (
        "cohere2_moe * config/sliding_layers/hf/keys/2*",
        "cohere2_moe * config/sliding_layers/gguf/*",
        "cohere2_moe * config/rope_layers/hf/keys*",
        "cohere2_moe * config/norm_topk/hf/default",
        "cohere2_moe * expect/hf*",
    ),
    "another field writes the key, too": ("cohere2_moe set config/norm/hf/keys/1 to *",),
    "tests/cli/test_streams.py has a model of that name that is another": (
        "gte_new drop match/hf/requires*",
    ),
    "no layer has an MLP of that width": ("qwen3_5_moe * config/intermediate_size/hf/omit*",),
    "every file says which layers have attention": (
        "_delta_net * config/attention_layers/gguf/default",
    ),
    "llama.cpp's converter writes it where a configuration has a base of what nothing rotates": (
        "_nemotron_h * expect/gguf*",
    ),
    "files say it in all their spellings, or in one": (
        "t5 swap config/scaled_head/hf/keys/0 with 1",
        "_nemotron_h swap config/head_dim/hf/keys/0 with 1",
        "_nemotron_h swap config/norm_eps/hf/*",
    ),
    "tests/recipe/test_predicted_layers.py has files with such layers": (
        "nemotron_h_moe * expect/hf*",
        "nemotron_h_moe * weights/hf/drop*",
        "glm4_moe drop config/n_layers",
        "exaone_moe drop config/n_layers",
        "solar_open drop config/n_layers*",
        "hy_v3 drop config/n_layers*",
        "hy_v3 set config/n_layers/gguf/codec to *",
        "* set config/n_layers/gguf/keys/1 to *",
        "* drop weights/*/past_layers*",
    ),
    "tests/recipe/test_transformers_peers.py compares what is left out": (
        "mamba2 * config/state_heads/hf/default*",
        "jamba * config/n_heads/hf/default*",
        "jamba * config/attention_layers/hf/default*",
        "jamba * config/expert_layers/hf/default*",
        "mellum set config/sliding_layers/hf/codec to *",
        "qwen[23]_vl* drop config/context_length",
        "qwen[23]_vl* drop config/head_dim",
        "qwen[23]_vl* drop config/n_experts*",
        "qwen[23]_vl* drop config/n_kv_heads",
        "qwen[23]_vl* drop config/norm_eps",
        "qwen[23]_vl* drop config/rope_theta",
        "qwen[23]_vl* drop config/expert_size",
        "qwen[23]_vl* * config/*/default*",
        "qwen2_vl * config/sliding_layers/hf/*",
        "qwen2_vl * match/hf/model_type/0*",
    ),
    "tests/recipe/test_load.py has both kinds of files": ("bamba * match/gguf/requires*",),
    "transformers writes a number where a configuration says null": (
        "bitnet drop config/n_kv_heads/default",
        "minicpm3 drop config/n_kv_heads/default",
        "phimoe drop config/n_kv_heads/default",
    ),
    "tests/recipe/test_gemma3n.py looks for what is written, and for what is refused": (
        "gemma3n set config/intermediate_size/hf/codec to 'first_width'",
        "gemma3n drop config/kv_shared_layers/gguf/codec",
        "gemma3n drop config/layer_embed_rows/gguf/*",
        "gemma3n drop weights/gguf/layer_embed.embed.weight",
        "gemma3n drop config/*stream*/gguf/values",
        "gemma3n * weights/hf/drop/[123]*",
        "gemma3n swap tables/rope/0 with 1",
    ),
    "none of its models that make vectors, which have no use for a head, is recorded": (
        "gemma3n * weights/hf/drop/0*",
    ),
    "of two rules that say why there is no tensor either may be the other": (
        "gemma3n swap weights/gguf/streams.spread.{stream}.weight with *",
    ),
    "tests/recipe/test_granite_swa.py looks for what is written": (
        "granite_swa swap config/rope_theta/hf/keys/0/0 with 1",
        "granite_swa swap config/rope_layers/hf/keys/0 with 1",
    ),
    "tests/recipe/test_phimoe.py looks for what is written": (
        "phimoe swap config/rope_original_context/hf/0 with 1",
    ),
    "tests/recipe/test_minicpm3.py looks for what is written, and for what is refused": (
        "minicpm3 drop config/[qo]*_bias",
        "minicpm3 * config/value_dim/gguf/omit*",
        "minicpm3 * config/rope_theta/gguf/omit*",
        "minicpm3 * config/rope_scaling/gguf/*",
        "minicpm3 * config/rope_scaling/hf/values/[dly]*",
        "minicpm3 drop weights/gguf/layers.{layer}.attn.q.weight",
    ),
    "the order of two operands or two reasons means nothing": (
        "minicpm3 swap config/head_dim/default/total/0 with 1",
        "gte_new swap config/rope_theta/hf/keys/1 with 2",
        "minicpm3 swap weights/gguf/*.bias with *",
        "minicpm3 swap weights/gguf/layers.{layer}.attn.q.weight with *",
    ),
    "two tensors say it": ("minicpm3 drop computed/gguf/rope_factors_*/when*",),
    "tests/recipe/test_xglm.py has files with such tensors, and such names": (
        "xglm * weights/hf/drop*",
        "xglm * weights/hf/rename*",
        "xglm * weights/hf/lm_head.weight/when*",
    ),
    "neither transformers nor llama.cpp reads it": (
        "mamba2 * expect/hf/norm_before_gate*",
        "mamba2 swap expect/hf/norm_before_gate with *",
    ),
    "llama.cpp's converter writes the same number for all": (
        "mamba drop config/context_length/hf",
        "mamba2 drop config/context_length/hf",
    ),
    "no recorded model is as wide as so many heads": ("mpt set config/n_heads/hf/default to *",),
    "transformers has no model of its class without a window": (
        "ministral set config/sliding_layers/hf/codec to '*_windows'",
    ),
    "all files say how large a head is": ("ministral3 * config/head_dim/default/*",),
    "a spelling of an activation that other families' recordings have": (
        "apertus * config/hidden_act/hf/values/*",
        "bitnet * config/hidden_act/hf/values/*",
        "nanochat * config/hidden_act/hf/values/*",
        "phi drop config/hidden_act/hf/values/*",
        "_selective drop config/hidden_act/hf/values/*",
        "_selective set config/hidden_act/hf/values/* to *",
        "_nemotron_h * config/*_act/hf/values/*",
        "mamba2 drop config/hidden_act/hf/values/*",
        "mamba2 set config/hidden_act/hf/values/* to *",
    ),
    "llama.cpp has no biases for these: the rules say what is never written": (
        "_selective swap weights/gguf/*.selective.[vg]*.bias with *",
        "falcon * weights/gguf/*bias*",
        "hy_v3 * weights/gguf/*bias*",
        "cohere2_moe * weights/gguf/*bias*",
        "mellum * weights/gguf/*bias*",
        "modernbert * weights/gguf/*bias*",
        "nemotron_h_moe * weights/gguf/*bias*",
    ),
    "one key says both, and so do all files": (
        "_rotary swap config/qkv_bias with 'o_bias'",
        "gpt_neox swap config/qkv_bias with 'o_bias'",
        "qwen3 swap config/qkv_bias with 'o_bias'",
        "starcoder2 swap config/[qo]*_bias with '*_bias'",
    ),
    "a name that is its own meaning is read, and written": (
        "_image_encoder drop config/hidden_act/hf/values/[gs]?lu",
        "clip_vision drop config/hidden_act/hf/values/*[eiu]lu",
        "convnext drop config/hidden_act/hf/values/[gs]?lu",
        "dinov2 drop config/hidden_act/hf/[01]/values/[gs]?lu",
        "resnet drop config/hidden_act/hf/values/[gs]?lu",
        "siglip_vision drop config/hidden_act/hf/values/[gs]?lu",
        "vit drop config/pooler_act/hf/values/tanh",
        "whisper drop config/hidden_act/hf/values/[gs]?lu",
        "xglm drop config/hidden_act/hf/values/[gs]?lu",
    ),
    "the order of a list of names means nothing": (
        "* swap aside/hf/*/* with *",
        "* swap config/*/allowed/* with *",
        "* swap config/*/when/*/* with *",
        "* swap expect/*/*/* with *",
        "* swap match/*/*/* with *",
        "roberta swap match/gguf/tokenizer.ggml.model/0 with 1",
    ),
    "a name that is its own meaning is read, and left out as the usual one": (
        "cohere2_moe drop config/expert_scores/hf/values/softmax",
    ),
    "a name that is its own meaning is read, and swish is written for it": (
        "starcoder2 drop config/hidden_act/hf/values/silu",
    ),
    "a name that is its own meaning is read, and no GGUF file says it, so that it is not written": (
        "g[ep][mt]* drop config/hidden_act/hf/values/gelu",
        "* drop config/hidden_act/hf/values/relu",
        "apertus drop config/rope_scaling/hf/values/dynamic",
        "bert drop config/hidden_act/hf/values/silu",
        "starcoder2 drop config/hidden_act/hf/values/gelu",
        "_rotary drop config/hidden_act/hf/values/gelu",
        "[fg]* drop config/hidden_act/hf/values/silu",
    ),
    "no GGUF file has the key, and the tensors' shapes refuse another number": (
        "gpt2 * config/n_kv_heads/gguf*",
        "gpt_neox * config/n_kv_heads/gguf*",
    ),
    "models of experts have both keys; a file with one of them is refused by either recipe": (
        "mixtral drop match/gguf/requires/*",
        "mixtral swap match/gguf/requires/*",
    ),
    "of recipes that ask for as much the first by name is taken": (
        "gemma3*_vision drop match/gguf",
        "falcon_mamba drop match/gguf/general.architecture",
        "qwen3_5*_[fv]* drop match/gguf",
    ),
    "two keys say one number, and both are written": (
        "whisper swap config/encoder_layers/hf/keys with 'also'",
    ),
    "no recorded file of a tied model has the matrix": (
        "whisper set weights/hf/decoder.lm_head.weight/when/tie_word_embeddings to False",
        "mamba set weights/hf/lm_head.weight/when/tie_word_embeddings to False",
        "_backbone set weights/hf/lm_head.weight/when/tie_word_embeddings to False",
    ),
    "a GGUF file that has the matrix is not tied": (
        "* set weights/gguf/lm_head.weight/when/tie_word_embeddings to False",
    ),
    "what several keys say must agree, in whatever order they are read": (
        "apertus swap config/rope_scaling/hf/keys/0 with 1",
        "minicpm3 swap config/rope_scaling/hf/keys/0 with 1",
        "phimoe swap config/rope_scaling/hf/keys/0 with 1",
        "nomic_bert swap config/rope_theta/hf/1 with 2",
        "modernbert swap config/rope*_theta/hf/0 with 1",
        "* swap config/vocab_size/gguf/keys/* with *",
    ),
    "the architecture refuses the same values": (
        "* drop config/*_act/allowed",
        "_rotary drop config/rope_scaling/allowed",
        "apertus drop config/rope_scaling/allowed",
        "minicpm3 drop config/rope_scaling/allowed",
    ),
    "tests/conversion/test_encoders.py reads a file without the key": (
        "modernbert set config/sliding_layers/gguf/default to 4",
    ),
    "tests/recipe/test_published_encoders.py looks for what is refused": (
        "modernbert drop config/hidden_act/gguf/values",
    ),
    "both keys are read, must agree, and are written": (
        "* swap config/*/gguf/keys with 'also'",
        "modernbert swap config/norm_eps/hf/keys with 'also'",
        "gemma3n swap config/rope_local_theta/hf/keys with 'also'",
    ),
    "no model has both keys": (
        "_rotary swap order/gguf/13 with 14",
        "_rotary swap order/gguf/14 with 15",
    ),
    "llama.cpp's converter writes no window where it writes the other": (
        "_rotary swap order/gguf/19 with 20",
    ),
    "the conditions exclude each other": (
        "_rotary swap config/rope_attention_factor/gguf/0 with 1",
    ),
    "one is only read, the other only written": (
        "clip_vision swap config/projection_size/hf/keys/0 with 1",
    ),
    "tests/parity/test_convnets.py looks for what is refused": (
        "convnext drop weights/hf/refuse*",
    ),
    "all dimensions before the last have one element": (
        "convnextv2 set weights/hf/*/ops/[01]/axis to 1",
    ),
    "options of the command line say it": (
        "_staged_images drop config/input_size",
        "_staged_images drop config/normalize",
        "_image_encoder drop config/input_size",
        "_image_encoder drop config/pooling",
        "_image_encoder drop config/normalize",
    ),
    "DINOv2's configurations have none of ViT's keys for poolers": (
        "dinov2 drop config/pooler_size",
        "dinov2 drop config/pooler_act",
    ),
    "only configurations and files of older releases of transformers have them": (
        "clip_vision * aside/hf/keys/[12]*",
        "siglip_vision * weights/hf/drop*",
    ),
    "the field is null unless the condition holds": (
        "apertus drop computed/gguf/rope_factors_*/when*",
        "llama drop computed/gguf/rope_factors_*/when*",
        "phi3 drop computed/gguf/rope_factors_*/when*",
        "phimoe drop computed/gguf/rope_factors_*/when*",
        "_rotary drop config/rope_attention_factor/gguf/1/when",
    ),
}
"""Patterns of a recipe's name and a mutation, by the reason."""
