"""GGUF files whose tensors lost first dimensions of 1, as llama-quantize writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.recipe import find_recipe, plan
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf
from tests.parity import folders

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 1,
    "num_experts_per_tok": 1,
}
SHARE = "blk.0.ffn_gate_inp_shexp.weight"
EXPERTS = "blk.0.ffn_up_exps.weight"


def copied(source: Path, target: Path, ones: int) -> Path:
    """A copy of a GGUF file without first dimensions of 1, or ``ones`` of them before vectors."""
    checkpoint = open_checkpoint(source)
    specs = []
    for info in checkpoint.tensors.values():
        first = next(index for index, dim in enumerate((*info.shape, 0)) if dim != 1)
        bare = info.shape[first:]
        shape = bare if len(bare) > 1 else (1,) * ones + bare
        specs.append(TensorSpec(info.name, info.dtype, shape, info.encoding))
    arrays = [checkpoint.read(spec.name).data.reshape(spec.stored_shape) for spec in specs]
    gguf.write(target, specs, arrays, checkpoint.metadata)
    return target


@pytest.mark.parametrize("ones", [0, 1])
def test_tensors_are_what_they_were(tmp_path: Path, ones: int) -> None:
    folders.write(tmp_path / "folder", {"model_type": "qwen2_moe", **SIZES}, 0)
    whole = tmp_path / "whole.gguf"
    convert(prepare(Request(tmp_path / "folder", whole)))
    copy = copied(whole, tmp_path / "copy.gguf", ones)
    shapes = [[*open_checkpoint(file).tensors[SHARE].shape] for file in (whole, copy)]
    assert shapes == [[1, 32], [1] * ones + [32]]
    made = [plan(find_recipe(one), one) for one in map(open_checkpoint, (whole, copy))]
    for each in made:
        each.check()
    for name in made[0].parameters:
        arrays = [each.read(name).data for each in made]
        assert arrays[0].shape == arrays[1].shape
        assert arrays[0].tobytes() == arrays[1].tobytes()
    back = tmp_path / "back"
    convert(prepare(Request(copy, back)))
    source = (tmp_path / "folder" / "model.safetensors").read_bytes()
    assert (back / "model.safetensors").read_bytes() == source
    convert(prepare(Request(back, tmp_path / "again.gguf")))
    assert open_checkpoint(tmp_path / "again.gguf").tensors[EXPERTS].shape == (1, 32, 32)


def test_other_shapes_are_still_refused(tmp_path: Path) -> None:
    folders.write(tmp_path / "folder", {"model_type": "qwen2_moe", **SIZES, "vocab_size": 65}, 0)
    convert(prepare(Request(tmp_path / "folder", tmp_path / "whole.gguf")))
    checkpoint = open_checkpoint(tmp_path / "whole.gguf")
    tensors = {info.name: info for info in checkpoint.tensors.values()}
    specs = [
        TensorSpec(info.name, info.dtype, info.shape[::-1] if name == SHARE else info.shape)
        for name, info in tensors.items()
    ]
    arrays = [checkpoint.read(spec.name).data.reshape(spec.shape) for spec in specs]
    gguf.write(tmp_path / "turned.gguf", specs, arrays, checkpoint.metadata)
    turned = open_checkpoint(tmp_path / "turned.gguf")
    made = plan(find_recipe(turned), turned)
    assert made.misshapen == [
        f"{SHARE}: needs [1, 32], found [32, 1] (for layers.0.mlp.shared.share.weight)"
    ]
