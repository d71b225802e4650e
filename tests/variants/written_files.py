"""Converted files beside those that they should be: llama.cpp's, and the folder they came from."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from safetensors.numpy import load_file

from tests.data.random_image_text_families import IMAGE_TEXT
from tests.data.seeded import Array, Config, tensors
from tests.variants.multiplied import multiplied
from tests.variants.rows import Row

# llama.cpp's converter writes 2048 for every Falcon, a million for state spaces, and makes a name
# of a folder's otherwise. It counts tied heads, and factors.
CORRECTED = frozenset(
    (
        *("falcon.context_length", "granitehybrid.context_length", "nemotron_h.context_length"),
        "nemotron_h_moe.context_length",
        *("general.name", "general.size_label"),
    )
)
# Written of a tokenizer, which these files have not.
OF_TOKENIZERS = frozenset({"tokenizer.ggml.add_bos_token"})
# It says these of some architectures, or where they are the quotient, and we say them of others.
SIZES = frozenset({"attention.key_length", "attention.value_length"})
ADDED = ("rope.scaling.attn_factor", "rope.scaling.original_context_length")
ROTARY = ("rope.freq_base", "rope.scaling.type", "rope.scaling.factor")
ADDED_TO: Mapping[str, tuple[str, ...]] = {
    "falcon": ROTARY,
    "gemma": ROTARY,
    "gemma2": ROTARY,
    "gpt_neox": ROTARY,
    "phi": ROTARY,
    "stablelm": ROTARY,
}
# Keys that stand elsewhere than in llama.cpp's files.
YARN = ("yarn_beta_fast", "yarn_beta_slow", "yarn_attn_factor", "original_context_length")
UNORDERED: Mapping[str, tuple[str, ...]] = {"gemma3_text": YARN}
# Said in other ways by what is written back: whether factors are Llama 3's is not in the file, nor
# what LFM2's width was before it was adjusted.
OTHERWISE = frozenset(
    (
        *("new_decoder_architecture", "num_ln_in_parallel_attn", "partial_rotary_factor"),
        *("rope_parameters", "rotary_pct", "use_sliding_window"),
        *("block_auto_adjust_ff_dim", "intermediate_size"),
    )
)
# Likewise of one family: its multipliers are in the weights, and there may be no norm to be before;
# or layers that are not there would be the next ones.
OTHERWISE_OF: Mapping[str, frozenset[str]] = {
    "jamba": frozenset(
        f"{kind}_layer_{key}" for kind in ("attn", "expert") for key in ("offset", "period")
    ),
    # One for each layer says so, and a word may be another.
    "laguna": frozenset({"num_attention_heads", "gating"}),
    # Null is 1.
    "mimo_v2_flash": frozenset({"attention_value_scale"}),
    # Of layers with a window, where there are none.
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), frozenset({"num_key_value_heads"})),
    "falcon_h1": frozenset(
        (
            *("mlp_multipliers", "ssm_multipliers", "lm_head_multiplier", "embedding_multiplier"),
            *("key_multiplier", "attention_in_multiplier", "attention_out_multiplier"),
            *("ssm_in_multiplier", "ssm_out_multiplier", "mamba_norm_before_gate"),
        )
    ),
}
FACTORS = ("rope_factors", "rope_freqs")
ROUNDING = 1.2e-7
"""Of norms that GGUF keeps with one added."""


def described(file: Path) -> Config:
    """The keys of a GGUF file in their order, and its tensors' shapes and checksums."""
    reader = GGUFReader(file)
    keys = {key: each.contents() for key, each in reader.fields.items() if key[:5] != "GGUF."}
    held = {
        each.name: [each.shape.tolist()[::-1], zlib.crc32(each.data.tobytes())]
        for each in reader.tensors
    }
    return {"keys": keys, "tensors": held}


def gguf_differences(row: Row, file: Path, told: set[str]) -> Iterator[str]:
    """Return a GGUF file's differences from llama.cpp's of the same configuration.

    Args:
        row: The configuration.
        file: What was written.
        told: Keys of which the user was told that llama.cpp's converter leaves them out.
    """
    actual, recorded = described(file), row.more["gguf"]
    keys = actual["keys"]
    wanted = {key: each for key, each in recorded["keys"].items() if key not in OF_TOKENIZERS}
    arch = wanted["general.architecture"]
    sizes = {f"{arch}.{key}" for key in SIZES}
    heads = wanted[f"{arch}.attention.head_count"]  # 0 without attention
    alike = isinstance(heads, int) and heads
    quotient = wanted[f"{arch}.embedding_length"] / heads if alike else None
    odd = {key for key in sizes if {**wanted, **keys}.get(key) != quotient}
    added = {f"{arch}.{key}" for key in (*ADDED, *ADDED_TO.get(row.family, ()))}
    further = keys.keys() - wanted.keys() - told - odd - added
    if wrong := {key for key in further if not key.startswith("tokenizer.")}:
        yield f"writes {wrong}, and llama.cpp does not"
    missing = (sizes - odd) - keys.keys()
    anywhere = UNORDERED.get(row.family, ())
    ours, theirs = (
        [key for key in left if key in right and not key.endswith(anywhere)]
        for left, right in ((keys, wanted), (wanted, keys))
    )
    if ours != theirs or wanted.keys() - keys.keys() - missing:
        yield f"writes {list(keys)}, llama.cpp {list(wanted)}"
    for key in wanted.keys() & keys.keys() - CORRECTED:
        if keys[key] != wanted[key]:
            yield f"writes {key} = {keys[key]!r}, llama.cpp {wanted[key]!r}"
    held, expected = actual["tensors"], recorded["tensors"]
    for name in {**held, **expected}:
        if held.get(name) != expected.get(name) and not name.startswith(FACTORS):
            yield f"writes another {name} than llama.cpp"


def folder_differences(
    row: Row, folder: Path, *, is_own: bool, dropped: Collection[str] = ()
) -> Iterator[str]:
    """Return a folder's differences from the one that its GGUF file came from.

    Args:
        row: The configuration of that one.
        folder: What was written.
        is_own: Whether it is a model of the same recipe; Mistral without a window is a Llama.
        dropped: Tensors that the conversion told it leaves out, as nothing reads them.
    """
    written, config = json.loads((folder / "config.json").read_text()), text_of(row.config)
    is_own = is_own and row.family not in IMAGE_TEXT
    says = {"model_type", "architectures"}
    others = OTHERWISE | OTHERWISE_OF.get(row.family, frozenset())
    told = (written.keys() & config.keys()) - says - others
    for key in sorted(told | (says if is_own else set())):
        if not _close(written.get(key), config[key]):
            yield f"writes {key} = {written.get(key)!r}, where it was {config[key]!r}"
    expected = tensors(row.shapes, row.norm)
    if row.family in IMAGE_TEXT:
        expected = language_model(expected)
    actual = load_file(folder / "model.safetensors")
    for name in sorted(actual.keys() ^ expected.keys()):
        if "pooler" not in name and (name in actual or name not in dropped):  # GGUF has no pooler
            yield f"writes {name}" if name in actual else f"does not write {name}"
    for name in actual.keys() & expected.keys():
        wanted = multiplied(config, name, expected[name])
        if not np.allclose(actual[name], wanted, rtol=ROUNDING, atol=ROUNDING):
            yield f"writes another {name}"


def text_of(config: Config) -> Config:
    """A configuration of the language model, whether a table describes it or not."""
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
    return config | config.get("text_config", {}) | tied


def language_model(held: dict[str, Array]) -> dict[str, Array]:
    """The tensors of the language model, by the names that they have without others."""
    own = {name.replace("model.language_model.", "model.", 1): held[name] for name in held}
    return {name: each for name, each in own.items() if "visual." not in name}


def _close(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return isinstance(right, dict) and all(
            _close(each, right[key]) for key, each in left.items() if key in right
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_close, left, right))
    numbers = isinstance(left, float) and isinstance(right, int | float)
    if numbers:
        return bool(np.isclose(left, right, rtol=1e-6, atol=0))
    return bool(left == right)
