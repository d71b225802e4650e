"""Gemma 3n: shares of gates that are zero, and what its GGUF files cannot say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from maxtool.architectures.sparse_gates import deviations
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.recipe import written_keys
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.expressions import Undefined
from tests.recipe.test_published import PUBLISHED, resolved
from tests.variants.rows import Files, Row, rows

KINDS = ("full_attention", "sliding_attention")
SHARES, DEVIATIONS = CODECS["shares_of_gates"], CODECS["deviations_of_gates"]


def layers(count: int) -> dict[str, Any]:
    return {"n_layers": count}


@pytest.mark.parametrize(("count", "sparse"), [(35, 10), (11, 10), (10, 0), (2, 0)])
def test_the_first_ten_layers_are_sparse_where_there_are_more(count: int, sparse: int) -> None:
    expected = (0.95,) * sparse + (0.0,) * (count - sparse)
    assert SHARES.read([None], layers(count)) == expected


@pytest.mark.parametrize("number", [1.6448535919189453, 1.6448533535003662])
def test_numbers_of_any_release_of_pytorch_are_the_share_that_was_meant(number: float) -> None:
    """Read what llama.cpp's converter writes, and what llama.cpp has in its code."""
    assert DEVIATIONS.read([[number, -math.inf]], layers(2)) == [0.95, 0.0]
    assert DEVIATIONS.write((0.95, 0.0), layers(2)) == ([1.6448535919189453, -math.inf],)
    assert deviations(0.5) == 0.0


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([1.0], "not one number for each of 2 layers"),
        ([math.inf, 1.0], "no share of gates in float32"),
        ([math.nan, 1.0], "no share of gates in float32"),
        (["many", 1.0], "not a number"),
        ([6.0, 1.0], "no share of gates in float32"),
        ([-40.0, 1.0], "no share of gates in float32"),
    ],
)
def test_numbers_that_are_no_shares_are_refused(numbers: list[Any], said: str) -> None:
    with pytest.raises(Undefined, match=said):
        DEVIATIONS.read([numbers], layers(2))
    with pytest.raises(Undefined, match="not one number"):
        SHARES.read([[0.5]], layers(2))


def test_one_number_for_all_layers_is_refused() -> None:
    """Refuse it, as transformers does, though its configuration lists it among its types."""
    for codec in (SHARES, DEVIATIONS):
        with pytest.raises(Undefined, match="not one number for each"):
            codec.read([0.95], layers(2))


def _has_four(row: Row) -> bool:
    """Return whether there are four streams, and tokens that have the vectors of another."""
    config = row.config
    is_known = (config["altup_num_inputs"], config["altup_active_idx"]) == (4, 0)
    return is_known and config["vocab_size_per_layer_input"] < config["vocab_size"]


def test_tokens_without_vectors_of_their_own_get_zeros_in_gguf(tmp_path: Path) -> None:
    """Write as many rows as llama.cpp wants, as its converter does, and say so."""
    row = next(filter(_has_four, rows("gemma3n_text")))
    tables = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in KINDS}
    granted = {"altup_correct_scale": True, "hidden_activation": "gelu_pytorch_tanh"}
    row = replace(row, config=row.config | granted | {"rope_parameters": tables})
    known = row.config["vocab_size_per_layer_input"]
    conversion = prepare(Request(Path(Files(tmp_path).checkpoint(row).path), tmp_path / "x.gguf"))
    said = f"layer_embed_rows = {known} is not written: tokens"
    assert any(said in note for note in conversion.notes)
    convert(conversion)
    tensors = {each.name: each.data for each in GGUFReader(tmp_path / "x.gguf").tensors}
    vectors = tensors["per_layer_token_embd.weight"]
    assert len(vectors) == row.config["vocab_size"]
    assert np.any(vectors[known - 1])
    assert not np.any(vectors[known:])


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"streams": 3}, "streams = 3"),
        ({"active_stream": 1}, "active_stream = 1"),
        ({"stream_scale": False}, "stream_scale = False"),
        ({"hidden_act": "silu"}, "hidden_act = 'silu'"),
        ({"kv_shared_layers": 11}, "kv_shared_layers = 11"),
    ],
)
def test_what_llama_cpp_takes_for_granted_is_refused(
    change: dict[str, Any], shown: str, tmp_path: Path
) -> None:
    recipe, found = resolved(tmp_path, PUBLISHED["gemma-3n-E2B-it"]["config"])
    with pytest.raises(ConfigurationError) as refusal:
        written_keys(recipe, "gguf", found.values | change)
    assert list(refusal.value.problems) == [f"{shown} has no spelling in gguf"]


def test_keys_are_written_as_transformers_writes_them(tmp_path: Path) -> None:
    recipe, found = resolved(tmp_path, PUBLISHED["gemma-3n-E2B-it"]["config"])
    keys = written_keys(recipe, "hf", found.values)
    assert keys["intermediate_size"] == [8192] * 30
    assert keys["rope_parameters.full_attention.rope_theta"] == 1e6
