"""Configuration keys that no recipe reads: those known to change nothing, and those never ignored.

A key stands for itself and for everything below it. Keys of training, of generation defaults, of
bookkeeping and of how a framework runs a model do not change the tensors a forward pass computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from maxtool.recipe.schema import Dialect

_HF = """
_attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash
_experts_implementation _experts_implementation_internal _from_model_config _name_or_path
_num_labels _sliding_window_pattern activation_dropout add_cross_attention altup_coef_clip
altup_lr_multiplier apply_layernorm apply_spec_augment architectures attention_dropout
attention_probs_dropout_prob attention_softmax_in_fp32 attn_implementation attn_pdrop auto_map
aux_loss_alpha bad_words_ids begin_suppress_tokens bias_dropout_fusion block_mlp_init_scale
block_out_init_scale block_use_xavier_init bos_token bos_token_id cache_implementation chunk_size
chunk_size_feed_forward cla_share_factor class_num classif_dropout classifier_dropout
classifier_proj_size cls_dropout cls_token_id conv_use_xavier_init cross_attention_hidden_size
decoder_bias decoder_layerdrop decoder_start_token_id dense_list dense_seq_output
deterministic_flash_attn directionality diversity_penalty do_sample drop_path_rate dropout
dropout_rate dtype early_stopping emb_pdrop embd_pdrop embed_dropout embedding_dropout
embedding_initializer_range encoder_layerdrop encoder_no_repeat_ngram_size encoder_stride
end_token_id eod_token_id eos_token eos_token_id ep_size exponential_decay_length_penalty
finetuning_task forced_bos_token_id forced_decoder_ids forced_eos_token_id fused_add_norm
fused_bias_fc fused_dropout_add_ln gradient_checkpointing hidden_dropout hidden_dropout_prob
id2label im_end_id im_newline_id im_start_id init_config init_std initializer_cutoff_factor
initializer_factor initializer_range input_jitter_noise is_decoder is_encoder_decoder
is_llama_config label2id layerdrop layerscale_value length_penalty load_balance_coeff
mamba_chunk_size mamba_ssm_cache_dtype mask_feature_length mask_feature_min_masks mask_feature_prob
mask_init_id mask_time_length mask_time_min_masks mask_time_prob mask_token mask_token_id max_length
max_window_layers median_filter_width min_length mlp_dropout mlp_expansion_factor model_max_length
model_type moe_capacity moe_jitter_eps moe_loss_weight moe_shared_expert_overlap mtp_layer_types
mtp_mlp_layer_types no_repeat_ngram_size num_beam_groups num_beams num_labels num_logits_to_keep
num_media_embeds num_return_sequences org_vocab_size out_features out_indices output_attentions
output_hidden_states output_past output_router_logits output_scores pad_id pad_key_length pad_token
pad_token_id pad_vocab_size_multiple parallel_block_tied_norm pooler_dropout pooler_fc_size
pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix
pretraining_tp problem_type qa_dropout reference_compile remove_invalid_values
reorder_and_upcast_attn repad_logits_with_grad repetition_penalty rescale_prenorm_residual
reshape_hidden_states resid_dropout resid_pdrop residual_dropout residual_in_fp32 return_dict
return_dict_in_generate rope_parameters.finetuned rope_parameters.max_position_embeddings
rope_scaling.finetuned router_aux_loss_coef router_jitter_noise save_step
scale_attention_softmax_in_fp32 sentence_transformers sep_token_id seq_aux seq_classif_dropout
sparse_pred_ignore_index sparse_prediction stage_names summary_activation summary_first_dropout
summary_last_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens
task_specific_params temperature text_end_id text_start_id tf_legacy_loss tie_weights_
time_step_floor time_step_init_scheme time_step_max time_step_min time_step_rank time_step_scale
tokenizer_class tokenizer_name top_k top_p torch_dtype torchscript transformers.js_config
transformers_version typical_p unk_token_id unpad_inputs unsloth_fixed unsloth_version
use_associative_scan use_bfloat16 use_cache use_falcon_mambapy use_flash_attention use_flash_attn
use_mamba_kernels use_mambapy use_mask_token use_memory_efficient_attention use_weighted_layer_sum
use_xentropy verbose video_end_id video_start_id z_loss_coefficient
"""
# Tables inside that transformers writes as whole configurations of their own.
_TABLES = ("", "attn_config.", "ffn_config.", "text_config.", "vision_config.")

IGNORED: Mapping[Dialect, frozenset[str]] = {
    "hf": frozenset(f"{table}{key}" for table in _TABLES for key in _HF.split()),
    # Only {arch}.* keys describe the network: the others name, cite or tokenize.
    "gguf": frozenset({"general", "tokenizer", "quantize", "split", "GGUF"}),
}

# Their presence means that the tensors are not what their names say.
_NEVER = "quantization_config compression_config quantization adapter_config peft_config"
NEVER_IGNORED: Mapping[Dialect, frozenset[str]] = {
    "hf": frozenset(_NEVER.split()),
    "gguf": frozenset({"adapter"}),
}


def covered(key: str, keys: frozenset[str]) -> bool:
    """Return whether ``key`` is one of ``keys`` or lies below one."""
    parts = key.split(".", _most_dots(keys) + 1)
    return any(".".join(parts[:end]) in keys for end in range(1, len(parts) + 1))


@cache
def _most_dots(keys: frozenset[str]) -> int:
    return max((name.count(".") for name in keys), default=0)
