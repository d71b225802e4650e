"""Square matrices of experts, which a file keeps as it keeps the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MisshapenWeight
from maxtool.recipe import Plan, find_recipe, plan
from maxtool.weights import open_checkpoint
from tests.data.seeded import Array, Config, tensors
from tests.variants.rows import rows

HIDDEN = 8
EXPERTS = ".mlp.experts."


def described(size: int) -> tuple[Config, dict[str, Array]]:
    """A model of two layers with experts of a size, and its tensors with rows of outputs."""
    row = next(row for row in rows("qwen3_vl_moe") if row.config["text_config"]["hidden_size"] == 8)
    text = row.config["text_config"] | {"moe_intermediate_size": size}
    shapes = dict(row.shapes)
    for name, (count, *_) in row.shapes.items():
        if EXPERTS in name:
            is_down = name.endswith("down_proj")
            shapes[name] = [count, *((HIDDEN, size) if is_down else (2 * size, HIDDEN))]
    return {**row.config, "text_config": text}, tensors(shapes, row.norm)


def turned(held: dict[str, Array], within: str = EXPERTS) -> dict[str, Array]:
    """The same with rows of inputs."""
    return {
        name: array.swapaxes(1, 2).copy() if EXPERTS in name and within in name else array
        for name, array in held.items()
    }


def planned(folder: Path, config: Config, held: dict[str, Array]) -> Plan:
    """The model as it is read."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(held, folder / "model.safetensors")
    checkpoint = open_checkpoint(folder)
    return plan(find_recipe(checkpoint), checkpoint)


@pytest.mark.parametrize("size", [HIDDEN, HIDDEN // 2, 3])
@pytest.mark.parametrize("is_turned", [True, False])
def test_square_ones_are_kept_as_the_others(size: int, is_turned: bool, tmp_path: Path) -> None:
    config, held = described(size)
    made = planned(tmp_path / "source", config, turned(held) if is_turned else held)
    made.check()
    layer = "model.language_model.layers.0.mlp.experts"
    gate, up = np.split(held[f"{layer}.gate_up_proj"], 2, axis=1)
    assert np.array_equal(made.read("layers.0.mlp.gate.weight").data, gate)
    assert np.array_equal(made.read("layers.0.mlp.up.weight").data, up)
    assert np.array_equal(made.read("layers.0.mlp.down.weight").data, held[f"{layer}.down_proj"])
    convert(prepare(Request(tmp_path / "source", tmp_path / "output")))
    written = load_file(tmp_path / "output" / "model.safetensors")
    for name, array in turned(held).items():
        if EXPERTS in name:
            kept = written[name.replace("language_model.", "")]
            assert np.array_equal(kept, array), name


def test_what_nothing_tells_is_refused(tmp_path: Path) -> None:
    config, held = described(HIDDEN)
    made = planned(tmp_path / "source", config, turned(held, "layers.0.mlp.experts.gate_up_proj"))
    with pytest.raises(MisshapenWeight, match=r"down_proj: is square, .* nothing tells"):
        made.check()
