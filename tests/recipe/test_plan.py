from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, prepare
from maxtool.dtype import DType
from maxtool.errors import (
    ConfigurationError,
    MisshapenWeight,
    MissingWeight,
    ModelMismatch,
    UnexpectedWeight,
)
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe import Plan, find_recipe, load_recipe, plan, recognise
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.formats import gguf

Edited = Callable[..., Path]
Q0 = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"


def planned(path: Path, **options: object) -> Plan:
    checkpoint = open_checkpoint(path)
    return plan(find_recipe(checkpoint), checkpoint, **options)


def rewritten(source: Path, target: Path, changes: Mapping[str, np.ndarray]) -> Path:
    """A GGUF file with float32 tensors added."""
    checkpoint = open_checkpoint(source)
    specs = [TensorSpec(i.name, i.dtype, i.shape, i.encoding) for i in checkpoint.tensors.values()]
    arrays = [checkpoint.read(name).data for name in checkpoint.tensors]
    specs += [TensorSpec(name, DType.float32, a.shape) for name, a in changes.items()]
    gguf.write(target, specs, [*arrays, *changes.values()], checkpoint.metadata)
    return target


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-tied", "tiny-mistral"])
def test_every_tensor_has_its_parameter(edited: Edited, name: str) -> None:
    folder = edited(name)
    made = planned(folder)
    made.check()
    sources = [s.name for binding in made.parameters.values() for s in binding.sources]
    assert sorted(sources) == sorted(made.checkpoint.tensors)
    for parameter, binding in made.parameters.items():
        data = made.read(parameter)
        assert (data.shape, data.dtype) == (binding.shape, binding.dtype)
        assert data.data.shape == data.shape


def test_a_rule_without_steps_gives_the_tensor_itself(edited: Edited) -> None:
    folder = edited()
    weights = load_file(folder / "model.safetensors")
    np.testing.assert_array_equal(planned(folder).read("layers.0.attn.q.weight").data, weights[Q0])


@pytest.mark.reference
@pytest.mark.parametrize("name", ["stories260K", "llama", "mistral"])
def test_both_dialects_give_the_same_parameters(reference: Path, name: str) -> None:
    left, right = planned(reference / name), planned(reference / name / f"{name}-f32.gguf")
    assert list(left.parameters) == list(right.parameters)
    for parameter in left.parameters:
        assert left.read(parameter).data.tobytes() == right.read(parameter).data.tobytes()


@pytest.mark.reference
def test_packed_rows_are_moved_without_decoding(reference: Path) -> None:
    made = planned(reference / "llama" / "llama-Q4_K_M.gguf")
    for parameter in made.parameters:
        data = made.read(parameter)
        sources = made.parameters[parameter].sources
        assert data.quantization_encoding is sources[0].encoding
        stored = made.checkpoint.read(sources[0].name)
        assert data.data.shape == stored.data.shape
        rows = {row.tobytes() for row in stored.data.reshape(-1, stored.data.shape[-1])}
        assert {row.tobytes() for row in data.data.reshape(-1, data.data.shape[-1])} == rows
    q = made.read("layers.0.attn.q.weight")
    assert q.quantization_encoding is QuantizationEncoding.Q4_K
    plain = planned(reference / "llama").read("layers.0.attn.q.weight").data
    error = np.abs(q.astype(DType.float32).data - plain).max() / np.abs(plain).max()
    assert error < 0.1  # in the order of Hugging Face; unpermuted rows differ by over 1


def test_missing(edited: Edited) -> None:
    made = planned(edited(tensors={Q0: None, NORM: None}))
    with pytest.raises(MissingWeight) as caught:
        made.check()
    assert len(caught.value.problems) == 2
    assert f"missing: {Q0} [48, 40] (for layers.0.attn.q.weight)" in caught.value.problems
    assert "layers.0.attn.q.weight" not in made.parameters
    with pytest.raises(MissingWeight):
        made.read("layers.0.attn.q.weight")


def test_misshapen_shows_both_shapes(edited: Edited) -> None:
    made = planned(edited(tensors={Q0: np.zeros((40, 48), np.float32)}))
    with pytest.raises(MisshapenWeight, match=r"needs \[48, 40\], found \[40, 48\]"):
        made.check()


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool])
def test_no_plain_floats(edited: Edited, dtype: type) -> None:
    made = planned(edited(tensors={Q0: np.zeros((48, 40), dtype)}))
    with pytest.raises(MisshapenWeight, match="not a plain floating-point type"):
        made.check()


def test_extra_and_out_of_range(edited: Edited) -> None:
    far = "model.layers.2.self_attn.q_proj.weight"
    extra = {"model.extra": np.zeros(3, np.float32), far: np.zeros((48, 40), np.float32)}
    with pytest.raises(UnexpectedWeight) as caught:
        planned(edited(tensors=extra)).check()
    assert "not used: model.extra [3]" in caught.value.problems
    assert any("layers.2.attn.q.weight" in problem for problem in caught.value.problems)


def test_a_bias_that_the_configuration_denies(edited: Edited) -> None:
    bias = {"model.layers.0.self_attn.q_proj.bias": np.zeros(48, np.float32)}
    with pytest.raises(UnexpectedWeight, match=r"layers\.0\.attn\.q\.bias"):
        planned(edited(tensors=bias)).check()


def test_what_all_layers_lack_is_one_line(edited: Edited) -> None:
    names = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(2)]
    checkpoint = open_checkpoint(edited(tensors=dict.fromkeys(names)))
    made = plan(find_recipe(checkpoint), checkpoint)
    assert len(made.missing) == 2
    line = "model.layers.{0..1}.self_attn.q_proj.weight [48, 40] (for layers.{0..1}.attn.q.weight)"
    with pytest.raises(MissingWeight) as caught:
        made.check()
    assert list(caught.value.problems) == [f"missing: {line}"]
    assert recognise(checkpoint).problems == [f"missing: {line}"]


def test_all_kinds_at_once(edited: Edited) -> None:
    changes = {NORM: None, Q0: np.zeros((1, 1), np.float32), "extra": np.zeros(1, np.float32)}
    with pytest.raises(ModelMismatch) as caught:
        planned(edited(tensors=changes)).check()
    assert type(caught.value) is ModelMismatch
    kinds = [problem.split(":")[0] for problem in caught.value.problems]
    assert kinds == ["missing", "wrong", "not used"]


def test_dropped_tensors_are_noted(edited: Edited) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    made = planned(edited(tensors={name: np.zeros(4, np.float32)}))
    made.check()
    assert made.dropped == [name]
    assert f"{name} is not needed to run and is dropped" in made.notes


def test_nothing_is_lost_with_tensors_of_no_elements(edited: Edited) -> None:
    """Transformers writes those of experts that a configuration has none of."""
    name = "model.layers.0.mlp.shared_experts.up_proj.weight"
    made = planned(edited(tensors={name: np.zeros((0, 32), np.float32)}))
    made.check()
    assert made.dropped == [name]
    assert f"{name} is not needed to run and is dropped" in made.notes


def test_more_layers_than_tensors(edited: Edited) -> None:
    folder = edited(config={"num_hidden_layers": 1 << 30})
    with pytest.raises(ConfigurationError, match="layers and the file only"):
        planned(folder)


def test_heads_that_do_not_divide(edited: Edited) -> None:
    with pytest.raises(ConfigurationError, match="not a multiple"):
        planned(edited(config={"num_key_value_heads": 3}))


class TestTied:
    @pytest.fixture
    def twice(self, edited: Edited) -> Path:
        folder = edited()
        weights = load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
        save_file(weights, folder / "model.safetensors")
        config = folder / "config.json"
        text = config.read_text()
        assert '"tie_word_embeddings": false' in text
        config.write_text(text.replace('ings": false', 'ings": true'))
        return folder

    def test_an_equal_head_is_dropped(self, twice: Path) -> None:
        made = planned(twice)
        made.check()
        assert "lm_head.weight" not in made.parameters
        assert made.duplicates == {"lm_head.weight": "model.embed_tokens.weight"}
        assert any("lm_head.weight is dropped" in note for note in made.notes)
        made.read("embed.weight")

    def test_another_head_is_an_error_before_anything_is_done(self, twice: Path) -> None:
        weights = load_file(twice / "model.safetensors")
        weights["lm_head.weight"][-1, -1] += 1
        save_file(weights, twice / "model.safetensors")
        with pytest.raises(ModelMismatch, match="differs from"):
            planned(twice).check()
        with pytest.raises(ModelMismatch, match="set tie_word_embeddings to false"):
            prepare(Request(twice, twice.parent / "out.gguf"))

    def test_a_head_of_another_shape(self, twice: Path) -> None:
        weights = load_file(twice / "model.safetensors")
        weights["lm_head.weight"] = weights["lm_head.weight"][:-1].copy()
        save_file(weights, twice / "model.safetensors")
        with pytest.raises(MisshapenWeight, match="to which it is tied"):
            planned(twice).check()


@pytest.mark.reference
def test_a_tensor_that_is_refused(
    reference: Path, tmp_path: Path, written: Callable[..., Path]
) -> None:
    source = reference / "llama" / "llama-f32.gguf"
    changed = rewritten(source, tmp_path / "x.gguf", {"rope_freqs.weight": np.ones(16, np.float32)})
    recipe = load_recipe(str(written()))
    with pytest.raises(ConfigurationError, match=r"rope_freqs\.weight.*Llama 3\.1"):
        plan(recipe, open_checkpoint(changed)).check()


@pytest.mark.reference
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", np.uint32(8)),
        ("llama.expert_count", np.array([8, 8], np.uint32)),
        ("llama.attention.head_count_kv", np.array([2, 2], np.uint32)),
        ("llama.attention.value_length", np.array([32, 32], np.uint32)),
        ("llama.rope.dimension_count", np.uint32(16)),
        ("llama.rope.freq_base", np.float32(np.nan)),
        ("llama.rope.scaling.type", "wave"),
        ("llama.new", "x"),
        ("llama.new", np.arange(9)),
    ],
)
def test_gguf_keys_that_change_the_network(
    reference: Path, tmp_path: Path, key: str, value: object
) -> None:
    checkpoint = open_checkpoint(reference / "llama" / "llama-f32.gguf")
    specs = [TensorSpec(i.name, i.dtype, i.shape) for i in checkpoint.tensors.values()]
    arrays = [checkpoint.read(name).data for name in checkpoint.tensors]
    gguf.write(tmp_path / "x.gguf", specs, arrays, {**checkpoint.metadata, key: value})
    with pytest.raises(ConfigurationError, match=key):
        planned(tmp_path / "x.gguf")


@pytest.mark.reference
def test_blocks_are_decoded_where_rows_do_not_stay_whole(
    reference: Path, written: Callable[..., Path]
) -> None:
    old = '"layers.{layer}.attn.o.weight" = "blk.{layer}.attn_output.weight"'
    rule = '{ from = "blk.{layer}.attn_output.weight", op = "transpose", axes = [1, 0] }'
    recipe = load_recipe(str(written((old, f'"layers.{{layer}}.attn.o.weight" = {rule}'))))
    checkpoint = open_checkpoint(reference / "llama" / "llama-Q8_0.gguf")
    data = plan(recipe, checkpoint).read("layers.0.attn.o.weight")
    stored = checkpoint.read("blk.0.attn_output.weight").astype(DType.float32).data
    assert data.quantization_encoding is None
    np.testing.assert_array_equal(data.data, stored.T)
