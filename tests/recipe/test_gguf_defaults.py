"""Defaults of GGUF keys that are left out: llama.cpp's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maxtool.architectures import DecoderConfig, decoder_checks
from maxtool.architectures.config import typed
from maxtool.recipe import find_recipe, resolve_config
from maxtool.weights import Checkpoint, TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf

DATA = Path(__file__).resolve().parents[1] / "data"


def without(name: str, key: str, output: Path) -> Checkpoint:
    """llama.cpp's file of a tiny checkpoint, but for one key."""
    source = open_checkpoint(DATA / name / f"{name}-f32.gguf")
    assert key in source.metadata
    metadata = {known: value for known, value in source.metadata.items() if known != key}
    specs = [TensorSpec(i.name, i.dtype, i.shape, i.encoding) for i in source.tensors.values()]
    gguf.write(output, specs, [source.read(each).data for each in source.tensors], metadata)
    return open_checkpoint(output)


@pytest.mark.parametrize(
    ("name", "key", "field", "expected"),
    [
        ("tiny-yarn", "llama.attention.head_count_kv", "n_kv_heads", 2),
        ("tiny-yarn", "llama.rope.freq_base", "rope_theta", 1e4),
        ("tiny-falcon", "falcon.attention.head_count_kv", "n_kv_heads", 3),
        ("tiny-gemma2", "gemma2.attention.sliding_window", "sliding_window", 4096),
        ("tiny-gemma2", "gemma2.attn_logit_softcapping", "attention_softcap", 50.0),
        ("tiny-gemma3", "gemma3.rope.freq_base", "rope_theta", 1e4),
        ("tiny-gemma3", "gemma3.rope.freq_base_swa", "rope_local_theta", 1e4),
        ("tiny-gemma3", "gemma3.attention.sliding_window", "sliding_layers", (False,) * 4),
        ("tiny-phi3-longrope", "phi3.rope.scaling.original_context_length", None, 64),
        ("tiny-yarn", "llama.rope.scaling.original_context_length", None, None),
    ],
)
def test_a_key_that_is_not_there(
    name: str, key: str, field: str | None, expected: Any, tmp_path: Path
) -> None:
    checkpoint = without(name, key, tmp_path / "file.gguf")
    values = resolve_config(find_recipe(checkpoint), checkpoint).values
    assert values[field or "rope_original_context"] == expected


def test_gemma3_without_a_window_has_one_base_in_all_layers(tmp_path: Path) -> None:
    checkpoint = without("tiny-gemma3", "gemma3.attention.sliding_window", tmp_path / "file.gguf")
    values = resolve_config(find_recipe(checkpoint), checkpoint).values
    config = typed(DecoderConfig, values, decoder_checks.problems)
    assert [config.window(layer) for layer in range(4)] == [None] * 4
    assert not any(map(config.is_local, range(4)))
    assert config.rope_theta == 1e6
