"""Language models of those that see images, which are plain models of other families."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.recipe import resolve_config
from maxtool.recipe.load import find_recipe
from maxtool.weights import open_checkpoint
from tests.parity.measure import error, logits
from tests.variants.rows import TOKENS, Files, Row, input_ids, rows

# The families, and what their language models are written as.
PLAIN = {"glm4v": "glm4", "glm4v_moe": "glm4_moe", "glm_ocr": "glm4", "paddleocr_vl": "llama"}


def computed(family: str) -> list[Row]:
    return [row for row in rows(family) if row.expected is not None]


def with_text(row: Row, **changed: object) -> Row:
    """The row with other keys in the table of its language model."""
    text = {**row.config["text_config"], **changed}
    return replace(row, config={**row.config, "text_config": text})


def usual(row: Row) -> Row:
    """The row with an activation and rotary positions that GGUF has for each of the families."""
    kept = ("rope_theta", "mrope_section", "partial_rotary_factor")
    rotary = row.config["text_config"]["rope_parameters"]
    table = {"rope_type": "default", **{key: rotary[key] for key in kept if key in rotary}}
    return with_text(row, hidden_act="silu", rope_parameters=table)


@pytest.mark.parametrize("family", PLAIN)
def test_what_is_written_computes_the_same(family: str, tmp_path: Path) -> None:
    """Compare both forms, and what is read of each, with the whole."""
    row = usual(computed(family)[0])
    source = Files(tmp_path).checkpoint(row).path
    ids = input_ids(TOKENS, row.size, 3)
    expected = logits(source, ids)
    for name in ("model.gguf", "folder"):
        convert(prepare(Request(source, tmp_path / name)))
        checkpoint = open_checkpoint(tmp_path / name)
        assert find_recipe(checkpoint).name == PLAIN[family]
        assert error(logits(tmp_path / name, ids), expected) < 1e-6


@pytest.mark.parametrize("family", PLAIN)
def test_keys_mean_the_same_where_they_are_written(family: str, tmp_path: Path) -> None:
    """Write each that the other family has another default for."""
    files = Files(tmp_path / "whole")
    for number, row in enumerate(computed(family)):
        source = files.checkpoint(row)
        values = resolve_config(find_recipe(source), source).values
        out = tmp_path / str(number)
        convert(prepare(Request(source.path, out)))
        written = open_checkpoint(out)
        assert resolve_config(find_recipe(written), written).values == values


def test_sections_decide_nothing(tmp_path: Path) -> None:
    row = computed("glm4v")[0]
    table = row.config["text_config"]["rope_parameters"]
    other = with_text(row, rope_parameters={**table, "mrope_section": table["mrope_section"][::-1]})
    ids = np.arange(3, 9)[None]
    found = [
        logits(Files(tmp_path / name).checkpoint(each).path, ids)
        for name, each in (("one", row), ("other", other))
    ]
    np.testing.assert_array_equal(*found)


def test_a_layer_that_predicts_further_tokens_is_left_out(tmp_path: Path) -> None:
    row = usual(computed("glm_ocr")[0])
    whole = Files(tmp_path / "whole").checkpoint(row).path
    layers = row.config["text_config"]["num_hidden_layers"]
    folder = tmp_path / "more"
    shutil.copytree(whole, folder)
    more = with_text(row, num_nextn_predict_layers=1)
    (folder / "config.json").write_text(json.dumps(more.config))
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    tensors[f"model.language_model.layers.{layers}.enorm.weight"] = np.ones(4, "f4")
    save_file(tensors, file)
    ids = input_ids(TOKENS, row.size, 3)
    np.testing.assert_array_equal(logits(folder, ids), logits(whole, ids))
