"""Recordings of ``tests/data/record_random.py``: configurations with many keys changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxtool.recipe import find_recipe, recipe_names
from tests.data.random_configs import ENCODERS
from tests.data.random_families import AS_PAIRS
from tests.data.seeded import sample
from tests.effort import sampled, thinned
from tests.parity.traced import TracedModel
from tests.variants import gguf_keys
from tests.variants.errors import computed
from tests.variants.judge import Judge
from tests.variants.rows import ALLOWED, RANDOM, Files, error, inputs, rows

# A decoder with every scaling, and an encoder.
KINDS = ("llama", "bert")
# Keys that have no usual value here; and what is not used, or decides shapes that the file tells.
REQUIRED = {"hidden_size", "intermediate_size", "max_position_embeddings", "n_embd", "n_head"} | {
    *("n_heads", "n_layer", "num_heads", "num_attention_heads", "num_hidden_layers", "text_config"),
    "vocab_size",
}
UNUSED = {
    "apertus": {"head_dim"},  # which its class does not list
    "dbrx": {"d_model", "rope_parameters"},  # the tables inside say the width and the base, too
    "gemma3n": {"text_config"},  # its class has another altogether
    "deberta-v2": {"hidden_size"},  # pooler_hidden_size says it too
    "gemma4_unified": {"tie_word_embeddings"},  # a head that a file has counts
    "gemma_embedding": {"use_bidirectional_attention"},  # without it another recipe reads it
    **{family: {"rope_interleave"} for family in AS_PAIRS},  # it tells the recipe
    "granitehybrid": {"num_local_experts", "num_experts_per_tok"}  # the tensors say that none are
    | {"intermediate_size", "shared_intermediate_size"},
    "kimi_linear": {"first_k_dense_replace", "linear_attn_config"},  # the class lists layers itself
    "mistral3": {"tie_word_embeddings"},  # without a head that tells, it is refused
    "nemotron_h": {"layer_norm_epsilon"},  # rms_norm_eps says it too
    "nemotron_h_moe": {"layer_norm_epsilon"},
    "olmo2": {"head_dim"},  # which its class does not list
    "phi3": {"original_max_position_embeddings"},
    "qwen2": {"num_key_value_heads"},
    "qwen3": {"num_key_value_heads"},
    "qwen3_5_moe_text": {"intermediate_size"},  # no layer has it
}
# Keys that only some families cannot do without.
NEEDED = {
    # How many elements are rotated, which is said too, contradicts the usual share.
    "apertus": {"rope_parameters"},
    "bamba": {"rope_parameters"},
    "cwm": {"rope_parameters"},
    "dbrx": {"attn_config"},  # transformers does not run without the bound in it
    # The width of a head, which is written too, contradicts the usual one.
    "deepseek_v2": {"num_experts_per_tok", "qk_rope_head_dim"},
    "deepseek_v3": {"qk_rope_head_dim"},
    "deepseek_v3_halves": {"qk_rope_head_dim"},
    "deepseek_v32": {"qk_rope_head_dim"},
    "glm_moe_dsa": {"qk_rope_head_dim"},
    "dots1": {"n_routed_experts", "num_experts_per_tok"},
    # The usual kinds leave no keys to some layers that share them.
    "gemma4_text": {"layer_types"},
    "gemma4_unified_text": {"layer_types"},
    "gpt_oss": {"rope_parameters"},
    "jamba": {"attn_layer_offset", "expert_layer_offset"},
    "minicpm3": {"qk_rope_head_dim"},
    "kimi_linear": {"qk_rope_head_dim"},
    "ministral3": {"rope_parameters"},
    "nemotron_h": {"layers_block_type"},
    "nemotron_h_moe": {"layers_block_type"},
    "xglm": {"attention_heads"},
    "youtu": {"qk_rope_head_dim"},
    "youtu_halves": {"qk_rope_head_dim"},
}
DECODERS = [family for family in RANDOM if family not in ENCODERS]
STEP = 3
"""Of so many configurations one is run token by token."""


# Folders of a model that sees: artifact/test_image_text.py compares what reads them whole, in which
# not all sizes of the language model alone are supported.
SEEING = ("gemma3",)
WRITING = [family for family in RANDOM if family not in SEEING]


@pytest.mark.long
@pytest.mark.parametrize("family", sampled(thinned(WRITING, *KINDS), *KINDS, share=5))
def test_a_family(family: str, tmp_path: Path) -> None:
    """Read it, convert it as llama.cpp's converter does, read the result, and convert it back."""
    judge = Judge([family], tmp_path)
    assert not list(judge.problems())
    # Some have no types of tokens, and then one input less.
    read = [case for case in judge.cases(family) if case.usual is not None]
    assert any(not list(judge.unoffered([case])) for case in read)
    assert not list(judge.faults(family, recipe_names(), None))
    case = judge.file(family)
    if case is not None and case.usual is not None:
        result = gguf_keys.measured(case.usual.recipe, case.checkpoint)
        assert result == gguf_keys.recorded()[family]


@pytest.mark.sampled
@pytest.mark.parametrize("family", RANDOM)
def test_keys_that_are_left_out(family: str, tmp_path: Path) -> None:
    """Read absent keys as the configuration's class does, or require them."""
    name = find_recipe(Files(tmp_path).checkpoint(next(rows(family)))).name
    result = Judge([family], tmp_path).incomplete(family, name)
    assert {key for key, how in result.items() if how == "other"} <= UNUSED.get(family, set())
    assert {key for key, how in result.items() if how == "refused"} <= REQUIRED | NEEDED.get(
        family, set()
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", sampled(DECODERS, share=4))
def test_calls_with_a_cache(family: str, tmp_path: Path) -> None:
    """A first call, then token by token; frequencies may follow the length that is reached."""
    files = Files(tmp_path)
    for row in list(computed(family))[::STEP]:
        ids = inputs(row)["input_ids"]
        starts = [0, *range(row.more["first"], ids.shape[1])]
        result = TracedModel(files.checkpoint(row)).cached(ids, starts)
        assert error(sample(result), np.array(row.more["cached"])) < ALLOWED, row


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    judge = Judge(["bert"], tmp_path)
    row = judge.cases("bert")[0].row
    assert row.expected is not None
    np.multiply(row.expected, 1.001, out=row.expected)
    assert any("off" in problem for problem in judge.problems())


def test_another_gguf_file_is_seen(tmp_path: Path) -> None:
    judge = Judge(["bert"], tmp_path)
    more = judge.cases("bert")[0].row.more
    keys = more["gguf"]["keys"]
    more["gguf"] = {**more["gguf"], "keys": {**keys, "bert.block_count": 7}}
    assert any("bert.block_count" in problem for problem in judge.problems())
