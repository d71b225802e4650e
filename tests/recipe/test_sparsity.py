"""Shares of gates that are zero, as transformers has them and as GGUF files say them."""

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
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.expressions import Undefined
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


def _shorter(row: Row) -> bool:
    config = row.config
    is_known = config["altup_num_inputs"] == 4 and config["altup_active_idx"] == 0
    return is_known and config["vocab_size_per_layer_input"] < config["vocab_size"]


def test_tokens_without_vectors_of_their_own_get_zeros_in_gguf(tmp_path: Path) -> None:
    """Write as many rows as llama.cpp wants, as its converter does, and say so."""
    row = next(row for row in rows("gemma3n_text") if _shorter(row))
    tables = {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in KINDS}
    granted = {"altup_correct_scale": True, "hidden_activation": "gelu_pytorch_tanh"}
    row = replace(row, config=row.config | granted | {"rope_parameters": tables})
    source, target = Path(Files(tmp_path).checkpoint(row).path), tmp_path / "model.gguf"
    conversion = prepare(Request(source, target))
    convert(conversion)
    said = f"layer_embed_rows = {row.config['vocab_size_per_layer_input']} is not written"
    assert any(said in note for note in conversion.notes)
    tensors = {each.name: each.data for each in GGUFReader(target).tensors}
    known = row.config["vocab_size_per_layer_input"]
    vectors = tensors["per_layer_token_embd.weight"]
    assert len(vectors) == row.config["vocab_size"]
    assert np.any(vectors[known - 1])
    assert not np.any(vectors[known:])
