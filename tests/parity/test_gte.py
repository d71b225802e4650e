"""GTE as it is published beside transformers' own form of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.errors import ConfigurationError
from maxtool.recipe import find_recipe, plan
from maxtool.weights import open_checkpoint
from tests.artifact.measure import Array, error
from tests.data.dense_folders import given
from tests.data.seeded import Config, tensors
from tests.parity.traced import TracedModel
from tests.variants.rows import Row, rows

SAID: Config = {
    "architectures": ["NewModel"],
    "model_type": "new",
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "unpad_inputs": False,
    "use_memory_efficient_attention": False,
}


def stretched() -> Row:
    """A recorded configuration whose frequencies are divided."""
    return next(row for row in rows("gte") if "factor" in row.config["rope_parameters"])


def published(row: Row) -> Config:
    """The configuration as its authors' code has it: of an NTK scaling that comes to the same."""
    table = row.config["rope_parameters"]
    dim = row.config["hidden_size"] // row.config["num_attention_heads"]
    factor = table["factor"] ** (dim / 2)
    kept = {key: each for key, each in row.config.items() if key != "rope_parameters"}
    scaling = {"type": "ntk", "factor": factor}
    return {**kept, **SAID, "rope_scaling": scaling, "rope_theta": table["rope_theta"] / factor}


def vectors(folder: Path, config: Config, row: Row, prefix: str = "") -> Array:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    named = {f"{prefix}{name}": each for name, each in tensors(row.shapes, row.norm).items()}
    save_file(named, folder / "model.safetensors")
    model = TracedModel(open_checkpoint(folder))
    types = {"token_type_ids": np.zeros_like(given()["input_ids"])}
    return model.run("forward", given() | types)["last_hidden_state"]


@pytest.mark.parametrize("prefix", ["", "new."])
def test_ntk_scaling(tmp_path: Path, prefix: str) -> None:
    row = stretched()
    actual = vectors(tmp_path / "new", published(row), row, prefix)
    assert error(actual, vectors(tmp_path / "gte", row.config, row)) < 1e-5
    assert find_recipe(open_checkpoint(tmp_path / "new")).name == "gte_new"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"pack_qkv": False}, "pack_qkv = False"),
        ({"position_embedding_type": "absolute"}, "position_embedding_type = 'absolute'"),
        ({"layer_norm_type": "rms_norm"}, "layer_norm_type = 'rms_norm'"),
        ({"logn_attention_scale": True}, "logn_attention_scale = True"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not supported (ntk is)"),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "mixed_b"),
        ({"rope_scaling": {"type": "ntk", "factor": 0}}, "factor = 0 is not a positive number"),
    ],
)
def test_what_is_not_supported(tmp_path: Path, change: Config, what: str) -> None:
    row = stretched()
    with pytest.raises(ConfigurationError) as refused:
        vectors(tmp_path / "new", published(row) | change, row)
    assert what in str(refused.value)


def test_without_scaling(tmp_path: Path) -> None:
    row = stretched()
    config = published(row) | {"rope_scaling": None, "rope_theta": 1234.0}
    vectors(tmp_path / "new", config, row)
    checkpoint = open_checkpoint(tmp_path / "new")
    found = plan(find_recipe(checkpoint), checkpoint).config
    assert (found["rope_theta"], found["rope_factor"]) == (1234.0, 1.0)
