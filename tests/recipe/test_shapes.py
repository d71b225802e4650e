"""Layers of unequal shapes, as transformers' tables of single layers and GGUF's lists say them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.errors import MisshapenWeight
from maxtool.recipe import find_recipe
from maxtool.recipe.codec_type import Unspellable
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.computed import TENSOR_CODECS, Findings
from maxtool.recipe.expressions import Undefined
from maxtool.recipe.match_checkpoint import plan
from maxtool.recipe.schema import Computed
from maxtool.weights import open_checkpoint
from tests.variants.rows import Files, rows

VALUES: dict[str, Any] = {
    "n_layers": 4,
    "sliding_layers": (True, False, True, False),
    "kv_shared_layers": 0,
    "local_head_dim": 8,
    "local_kv_heads": 3,
    "head_dim": 16,
    "intermediate_size": 40,
    "value_layers": (True, False, True, False),
}


def test_tables_of_single_layers() -> None:
    dim, heads = CODECS["dim_without_window"], CODECS["kv_heads_without_window"]
    tables = {str(layer): {"head_dim": 16, "num_key_value_heads": 1} for layer in (1, 3)}
    assert dim.read([tables, 4], VALUES) == 16
    assert dim.read([{}, 4], VALUES) == 8
    assert heads.read([tables, None, 2], VALUES) == 1
    assert heads.read([None, True, 2], VALUES) == 2
    assert heads.read([None, False, 2], VALUES) == 3
    with pytest.raises(Unspellable):
        heads.write(1, VALUES | {"value_layers": None})


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ([], "no table of layers"),
        ({"4": {"head_dim": 16}}, "no layer of 4"),
        ({"-1": {"head_dim": 16}}, "no layer of 4"),
        ({"full_attention": {"head_dim": 16}}, "no layer of 4"),
        ({"1": {"hidden_size": 16}}, "supported are head_dim and num_key_value_heads"),
        ({"1": None}, "supported are"),
        ({"0": {"head_dim": 16}}, "layers with a window are alike"),
        ({"1": {"head_dim": 16}}, "layers without one are alike"),
    ],
)
def test_tables_that_say_other_shapes_are_refused(tables: Any, said: str) -> None:
    with pytest.raises(Undefined, match=said):
        CODECS["dim_without_window"].read([tables, None], VALUES)


def test_lists_of_layers() -> None:
    local, other = CODECS["kv_heads_of_windows"], CODECS["kv_heads_of_others"]
    assert (local.read([[3, 1, 3, 1]], VALUES), other.read([[3, 1, 3, 1]], VALUES)) == (3, 1)
    assert local.write(3, VALUES | {"n_kv_heads": 1}) == ([3, 1, 3, 1],)
    for counts, said in (([3, 1], "for each layer"), ([3, 1, 2, 1], "several numbers")):
        with pytest.raises(Undefined, match=said):
            local.read([counts], VALUES)
    with pytest.raises(Undefined, match="one number for each layer"):
        CODECS["width_of_each"].read([[1, 2]], VALUES)


def test_shared_keys_are_those_that_llama_cpp_would_take() -> None:
    shared = CODECS["shared_by_place"]
    assert shared.write(2, VALUES) == (2,)
    for windows in ((False, True, True, False), (False, False, True, False)):
        with pytest.raises(Unspellable):
            shared.write(2, VALUES | {"sliding_layers": windows})


@pytest.mark.parametrize("kind", ["proportional", "default", "linear", None])
def test_the_share_of_a_head_that_is_rotated(kind: str | None) -> None:
    pairs = CODECS["share_of_pairs"]
    assert pairs.read([kind, 0.25 if kind == "proportional" else None, 1e6], VALUES) == (
        2 if kind == "proportional" else 8
    )
    assert pairs.read([None, None, None], VALUES) == 2
    for raws in (["linear", 0.5, 1e6], ["proportional", 1.5, 1e6]):
        with pytest.raises(Undefined):
            pairs.read(raws, VALUES)


@pytest.mark.parametrize(
    "factors", [[1.0, 1.0], [1.0, 2.0, *[1e30] * 6], [1.0, 1e30, 1.0, *[1e30] * 5]]
)
def test_factors_of_other_rotations_are_refused(factors: list[float]) -> None:
    tensor = Computed("rope_freqs.weight", "proportional", "", {"rope_scaling": "proportional"})
    found = Findings([(tensor, np.array(factors, np.float32))])
    with pytest.raises(MisshapenWeight):
        found.say("rope_pairs", VALUES)
    made = TENSOR_CODECS["proportional"].make(
        tensor, VALUES | {"rope_pairs": 3, "rope_factor": 2.0}
    )
    read = Findings([(tensor, made)])
    assert read.say("rope_pairs", VALUES) == ("rope_freqs.weight", 3)
    assert read.say("rope_factor", VALUES) == ("rope_freqs.weight", 2.0)


@pytest.mark.parametrize("family", ["gemma3n_text", "gemma4_text", "gemma4_unified_text"])
@pytest.mark.parametrize("tensor", ["k_proj.weight", "v_proj.weight", "k_norm.weight"])
def test_keys_that_shared_layers_do_not_need(family: str, tensor: str, tmp_path: Path) -> None:
    """Leave them out: published checkpoints have them all the same."""
    row = next(row for row in rows(family) if row.config["num_kv_shared_layers"])
    folder = Path(Files(tmp_path).checkpoint(row).path)
    last = row.config["num_hidden_layers"] - 1
    further = f"model.layers.{last}.self_attn.{tensor}"
    assert further not in row.shapes
    file = folder / "model.safetensors"
    save_file(load_file(file) | {further: np.ones((2, 2), "f4")}, file, {"format": "pt"})
    checkpoint = open_checkpoint(folder)
    assert plan(find_recipe(checkpoint), checkpoint).unused == []
