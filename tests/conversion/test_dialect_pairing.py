"""Checkpoints of one model in two dialects, paired tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from maxtool.conversion.dialect_pairing import GatheredElements, paired
from maxtool.conversion.engine import convert, prepare
from maxtool.conversion.request import Request
from maxtool.dtype import DType
from maxtool.errors import ModelMismatch
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.quantization import dequantize as decoded
from maxtool.recipe.gathered_rows import Gathered
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf as gguf_format
from tests.schemes import pure

DATA = Path(__file__).resolve().parents[1] / "data"
SAMPLE = DATA.parents[1] / "samples" / "fireside"
# What llama.cpp's converter made of checkpoints.
CONVERTED = sorted(DATA.glob("tiny-*/*-f32.gguf"))
Q8_0 = QuantizationEncoding.Q8_0


def converted(source: Path, output: Path, **options: Any) -> Path:
    convert(prepare(Request(source, output, **options)))
    return output


@pytest.mark.parametrize("other", CONVERTED, ids=lambda file: file.parent.name)
def test_a_conversion_by_llama_cpp_differs_in_nothing(other: Path) -> None:
    for pair in ((other.parent, other), (other, other.parent)):
        pairing = paired(*map(open_checkpoint, pair))
        assert pairing.recipe is not None
        assert len(pairing.pairs) > 9
        assert not (pairing.only_first or pairing.only_second or pairing.misshapen)
        # Norms to which GGUF adds 1 lose some of their last bits.
        far = {one.name: one.measure().distance.relative for one in pairing.pairs}
        assert all(apart < (1e-6 if "norm" in name else 1e-30) for name, apart in far.items()), far


def test_errors_are_those_that_the_ecosystem_would_measure(tmp_path: Path) -> None:
    """Decode with the gguf package, undo the order of rotary dimensions by hand."""
    source = SAMPLE
    config = json.loads((source / "config.json").read_text())
    output = converted(source, tmp_path / "model.gguf", quantize=pure(Q8_0))
    stored = {one.name: one for one in gguf.GGUFReader(output).tensors}
    original = load_file(source / "model.safetensors")
    pairing = paired(open_checkpoint(source), open_checkpoint(output), "*layers.0.*_proj.weight")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    assert len(pairing.pairs) == 7
    for difference in (one.measure() for one in pairing.pairs):
        role = difference.name.split(".")[-2]
        name = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v"}.get(role, "")
        name = name or {"o_proj": "attn_output"}.get(role, f"ffn_{role.removesuffix('_proj')}")
        tensor = stored[f"blk.0.{name}.weight"]
        values = dequantize(tensor.data, tensor.tensor_type)
        if name in heads:
            count = heads[name]
            halves = values.reshape(count, -1, 2, values.shape[-1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        wide = original[difference.name].astype(np.float64)
        error = values.astype(np.float64) - wide
        distance = difference.distance
        assert distance.rmse == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)
        assert distance.largest == np.abs(error).max()
        relative = np.linalg.norm(error) / np.linalg.norm(wide)
        assert distance.relative == pytest.approx(relative, rel=1e-12)
        assert 0 < relative < 0.01
        assert difference.second.types == "Q8_0"
        assert difference.second.bits == 8.5


def test_what_has_no_counterpart(tmp_path: Path) -> None:
    source, copy = DATA / "tiny-llama", tmp_path / "copy"
    copy.mkdir()
    for file in source.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    tensors = load_file(source / "model.safetensors")
    save_file({name: tensors[name] for name in sorted(tensors)[1:]}, copy / "model.safetensors")
    other = converted(source, tmp_path / "model.gguf")
    with pytest.raises(ModelMismatch, match="no tensor has the same name") as caught:
        paired(open_checkpoint(copy), open_checkpoint(other))
    assert any("missing" in problem for problem in caught.value.problems)
    named = paired(open_checkpoint(source), open_checkpoint(copy))
    assert (named.recipe, named.only_first) == (None, (min(tensors),))


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(1, 4),
    st.booleans(),
    st.data(),
)
def test_parts_of_gathered_rows(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[int],
    blocks: int,
    packed: bool,
    data: st.DataObject,
) -> None:
    """Any part that begins and ends between blocks is what lies there in all of the rows."""
    file = tmp_path_factory.mktemp("rows") / "rows.gguf"
    random, width = np.random.default_rng(0), 32 * blocks
    arrays = [random.standard_normal((count, width)).astype(np.float32) for count in rows]
    encoding = Q8_0 if packed else None
    specs = [
        TensorSpec(f"t{index}", DType.float32, array.shape, encoding)
        for index, array in enumerate(arrays)
    ]
    stored = [quantize(array, Q8_0) if packed else array for array in arrays]
    gguf_format.write(file, specs, stored, {})
    checkpoint = open_checkpoint(file)
    order = data.draw(st.permutations(range(sum(rows))))
    sources = tuple(checkpoint.tensors[spec.name] for spec in specs)
    gathered = GatheredElements(checkpoint, Gathered(sources, np.array(order, np.intp)))
    values = np.concatenate([decoded(one, Q8_0) if packed else one for one in stored])
    expected = values[order].reshape(-1)
    assert gathered.size == expected.size
    ends = st.integers(0, expected.size // 32).map(lambda block: 32 * block)
    start, stop = sorted((data.draw(ends), data.draw(ends)))
    if start < stop:
        np.testing.assert_array_equal(gathered[slice(start, stop)], expected[start:stop])


def test_names_do_where_no_recipe_fits(tmp_path: Path) -> None:
    """Two dialects, with the name of one tensor in common."""
    array = np.ones((2, 32), np.float32)
    save_file({"output.weight": array, "x": array}, tmp_path / "a.safetensors")
    spec = TensorSpec("output.weight", DType.float32, array.shape)
    gguf_format.write(tmp_path / "b.gguf", [spec], [array], {})
    pairing = paired(*(open_checkpoint(tmp_path / name) for name in ("a.safetensors", "b.gguf")))
    assert [pair.name for pair in pairing.pairs] == ["output.weight"]
    assert (pairing.only_first, pairing.recipe) == (("x",), None)
    assert any("config.json" in note for note in pairing.notes)


@pytest.mark.parametrize("name", ["bnb-nf4", "ct-int4-zeros"])
def test_quantized_checkpoints_are_compared_as_what_they_mean(name: str, tmp_path: Path) -> None:
    source = DATA / "quantized" / name
    other = converted(source, tmp_path / "model.gguf")
    pairing = paired(open_checkpoint(source), open_checkpoint(other))
    assert not (pairing.only_first or pairing.only_second or pairing.misshapen)
    matrices = [pair for pair in pairing.pairs if pair.first.types in ("NF4", "INT4")]
    assert len(matrices) == 14
    assert all(pair.measure().distance.differing == 0 for pair in pairing.pairs)
