"""Conversions of our own tiny checkpoints, and of checkpoints with something odd in them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGUFReader, LlamaFileType
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from maxtool.conversion import Request, convert, prepare
from maxtool.conversion.edit_request import TensorEdits
from maxtool.conversion.output_types import FILE_TYPES, stays_float32
from maxtool.dtype import DType
from maxtool.errors import MachineLacks, ModelMismatch, OutputExists, UsageError
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.scheme import Scheme
from maxtool.weights import open_checkpoint
from tests.schemes import pure

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = ["tiny-llama", "tiny-llama-tied", "tiny-mistral"]
Q0 = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., Path]:
    """Copies a tiny checkpoint, with tensors replaced."""

    def copy(name: str = "tiny-llama", **tensors: np.ndarray) -> Path:
        folder = tmp_path / name
        shutil.copytree(DATA / name, folder, dirs_exist_ok=True)
        if tensors:
            file = folder / "model.safetensors"
            save_file(load_file(file) | tensors, file)
        return folder

    return copy


def run(source: Path, output: Path, **options: object) -> tuple[list[str], list[str]]:
    result = prepare(Request(source, output, **options))
    report = convert(result)
    files = [output] if output.is_file() else list(output.iterdir())
    assert sum(file.stat().st_size for file in files) == result.nbytes
    return result.notes, report.warnings


def values(folder: Path, name: str = "model.safetensors") -> dict[str, tuple[Any, ...]]:
    checkpoint = open_checkpoint(folder / name)
    return {
        name: (info.dtype, info.shape, checkpoint.read(name).data.tobytes())
        for name, info in checkpoint.tensors.items()
    }


@pytest.mark.parametrize("name", TINY)
def test_there_and_back_is_every_bit(tmp_path: Path, name: str) -> None:
    """tiny-llama-tied is bfloat16: its vectors are float32 in GGUF and bfloat16 again after it."""
    run(DATA / name, tmp_path / "a.gguf")
    run(tmp_path / "a.gguf", tmp_path / "b")
    assert values(tmp_path / "b") == values(DATA / name)
    old, new = (json.loads((f / "config.json").read_text()) for f in (DATA / name, tmp_path / "b"))
    assert new["dtype"] == old.get("dtype", old.get("torch_dtype"))
    for key in ("architectures", "model_type", "bos_token_id", "eos_token_id", "vocab_size"):
        assert new[key] == old[key]


@pytest.mark.parametrize("name", TINY)
def test_written_safetensors_load_in_the_library(tmp_path: Path, name: str) -> None:
    run(DATA / name, tmp_path / "out", dtype=DType.float16)
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert {file.get_tensor(key).dtype for key in file.keys()} == {np.dtype(np.float16)}  # noqa: SIM118


def test_huggingface_to_huggingface_keeps_everything_else(tmp_path: Path) -> None:
    origin = DATA / "tiny-llama-tied"
    run(origin, tmp_path / "out", dtype=DType.float32)
    old, new = (json.loads((f / "config.json").read_text()) for f in (origin, tmp_path / "out"))
    assert new == old | {"torch_dtype": "float32"}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (origin / name).read_bytes()
    wide, narrow = values(tmp_path / "out"), values(origin)
    for name, (dtype, shape, data) in narrow.items():
        expected = np.frombuffer(data, ml_dtypes.bfloat16).astype(np.float32)
        assert dtype is DType.bfloat16
        assert wide[name] == (DType.float32, shape, expected.tobytes())


def test_safetensors_alone(tmp_path: Path) -> None:
    run(DATA / "tiny-llama", tmp_path / "out.safetensors", dtype=DType.bfloat16)
    assert {dtype for dtype, _, _ in values(tmp_path, "out.safetensors").values()} == {
        DType.bfloat16
    }


def test_biases_are_permuted_like_their_weights(tmp_path: Path) -> None:
    run(DATA / "tiny-llama-tied", tmp_path / "a.gguf", dtype=DType.float32)
    tensors = {t.name: t.data for t in GGUFReader(tmp_path / "a.gguf").tensors}
    origin = open_checkpoint(DATA / "tiny-llama-tied")
    bias = origin.read("model.layers.0.self_attn.q_proj.bias").data.astype(np.float32)
    pairs = bias.reshape(4, 2, 4).swapaxes(1, 2).reshape(-1)
    np.testing.assert_array_equal(tensors["blk.0.attn_q.bias"], pairs)
    assert not np.array_equal(pairs, bias)
    assert "output.weight" not in tensors


def test_shards_are_read_in_their_order(tmp_path: Path, source: Callable[..., Path]) -> None:
    """Read shards as llama.cpp's converter does: file by file, each by name."""
    folder = source()
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    first = {name: weights[name] for name in names[3:]}
    files = {"model-00001-of-00002.safetensors": first}
    files["model-00002-of-00002.safetensors"] = {name: weights[name] for name in names[:3]}
    for file, part in files.items():
        save_file(part, folder / file)
    (folder / "model.safetensors").unlink()
    places = {name: file for file, part in files.items() for name in part}
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    run(folder, tmp_path / "shards.gguf")
    run(DATA / "tiny-llama", tmp_path / "whole.gguf")
    shards, whole = (
        [(t.name, t.data.tobytes()) for t in GGUFReader(tmp_path / name).tensors]
        for name in ("shards.gguf", "whole.gguf")
    )
    assert shards == whole[3:] + whole[:3]


def test_linear_scaling_is_written(tmp_path: Path) -> None:
    run(DATA / "tiny-llama-tied", tmp_path / "a.gguf")
    fields = GGUFReader(tmp_path / "a.gguf").fields
    assert fields["llama.rope.scaling.type"].contents() == "linear"
    assert fields["llama.rope.scaling.factor"].contents() == 2.0
    assert fields["general.file_type"].contents() == 32


def test_window_survives(tmp_path: Path) -> None:
    run(DATA / "tiny-mistral", tmp_path / "a.gguf")
    run(tmp_path / "a.gguf", tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (config["model_type"], config["sliding_window"]) == ("mistral", 7)


ALLOWED = {"allow_nonfinite": True}


class TestValues:
    def test_overflow_is_an_error_and_leaves_nothing(
        self, tmp_path: Path, source: Callable[..., Path]
    ) -> None:
        weight = load_file(DATA / "tiny-llama" / "model.safetensors")[Q0]
        weight[3, 5] = 70000
        folder = source(**{Q0: weight})
        before = sorted(tmp_path.iterdir())
        with pytest.raises(ModelMismatch, match="float16") as caught:
            run(folder, tmp_path / "a.gguf", dtype=DType.float16)
        assert caught.value.tensor == "blk.0.attn_q.weight"
        assert sorted(tmp_path.iterdir()) == before
        run(folder, tmp_path / "a.gguf", dtype=DType.bfloat16)

    def test_infinity_that_was_there_passes_with_a_warning(
        self, tmp_path: Path, source: Callable[..., Path]
    ) -> None:
        weight = load_file(DATA / "tiny-llama" / "model.safetensors")[Q0]
        weight[0, 0] = -np.inf
        _, warnings = run(source(**{Q0: weight}), tmp_path / "b", dtype=DType.float16, **ALLOWED)
        assert warnings == [f"{Q0} holds 1 infinite"]
        assert load_file(tmp_path / "b" / "model.safetensors")[Q0][0, 0] == -np.inf

    @pytest.mark.parametrize("dtype", [None, DType.float16, DType.bfloat16])
    def test_nan_is_warned_of(
        self, tmp_path: Path, source: Callable[..., Path], dtype: DType | None
    ) -> None:
        weight = load_file(DATA / "tiny-llama" / "model.safetensors")[Q0]
        weight[0, 0] = np.nan
        _, warnings = run(source(**{Q0: weight}), tmp_path / "b", dtype=dtype, **ALLOWED)
        assert warnings == [f"{Q0} holds 1 NaN"]
        weight[-1, -1] = np.inf
        _, warnings = run(
            source("tiny-llama", **{Q0: weight}), tmp_path / "c", dtype=dtype, **ALLOWED
        )
        assert warnings == [f"{Q0} holds 1 NaN and 1 infinite"]

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
    def test_blocks_take_finite_values_only(
        self, tmp_path: Path, source: Callable[..., Path], bad: float
    ) -> None:
        name = "model.layers.0.mlp.gate_proj.weight"
        weights = load_file(DATA / "tiny-mistral" / "model.safetensors")
        weights[name][0, 0] = bad
        folder = source("tiny-mistral", **{name: weights[name]})
        with pytest.raises(ModelMismatch, match="Q8_0"):
            run(folder, tmp_path / "a.gguf", quantize=Scheme.named("Q8_0"))


def test_what_is_quantized_again_is_said_in_one_line(tmp_path: Path) -> None:
    q4, q8 = QuantizationEncoding.Q4_0, QuantizationEncoding.Q8_0
    run(DATA / "tiny-mistral", tmp_path / "a.gguf", quantize=pure(q4))
    tensors = open_checkpoint(tmp_path / "a.gguf").tensors.values()
    matrices = [info.name for info in tensors if info.encoding is q4]
    with pytest.raises(UsageError, match="--allow-requantize"):
        run(tmp_path / "a.gguf", tmp_path / "b.gguf", quantize=pure(q8))
    again = replace(pure(q8), requantize=True)
    notes, _ = run(tmp_path / "a.gguf", tmp_path / "b.gguf", quantize=again)
    assert len(matrices) > 2
    what = "quantized before, and quantized again at a further loss"
    assert notes == [f"{what}: {matrices[0]} and {len(matrices) - 1} more"]
    assert run(tmp_path / "a.gguf", tmp_path / "c.gguf", quantize=pure(q4))[0] == []
    edits = TensorEdits(renames=(("blk", "b"),), casts=(("b.*", DType.float32),))
    rest = [name for name in matrices if not name.startswith("blk.")]
    notes, _ = run(tmp_path / "a.gguf", tmp_path / "d.gguf", quantize=again, edits=edits)
    decoded = f"{len(matrices) - len(rest)} quantized tensors are decoded"
    assert notes == [decoded, f"{what}: {rest[0]} and {len(rest) - 1} more"]


class TestRequests:
    def test_existing_output(self, tmp_path: Path) -> None:
        output = tmp_path / "a.gguf"
        output.write_bytes(b"mine")
        with pytest.raises(OutputExists):
            prepare(Request(DATA / "tiny-llama", output))
        run(DATA / "tiny-llama", output, force=True)
        assert output.read_bytes()[:4] == b"GGUF"

    @pytest.mark.parametrize("name", ["inside.gguf", "inside", "."])
    def test_never_into_the_source(self, source: Callable[..., Path], name: str) -> None:
        folder = source()
        with pytest.raises(UsageError):
            prepare(Request(folder, folder / name, force=True))

    def test_never_over_its_own_file(self, tmp_path: Path) -> None:
        run(DATA / "tiny-llama", tmp_path / "a.gguf")
        with pytest.raises(UsageError):
            prepare(Request(tmp_path / "a.gguf", tmp_path / "a.gguf", force=True))

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("out", {"quantize": Scheme.named("Q8_0")}),
            ("a.gguf", {"to": "hf"}),
            ("a.gguf", {"quantize": Scheme.named("Q8_0"), "dtype": DType.float16}),
        ],
    )
    def test_contradictions(self, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            prepare(Request(DATA / "tiny-llama", tmp_path / name, **options))

    def test_room_is_checked_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        planned = prepare(Request(DATA / "tiny-llama", tmp_path / "a.gguf"))
        assert planned.shortage is None
        usage = shutil.disk_usage(tmp_path)._replace(free=1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
        with pytest.raises(MachineLacks, match="1000 are free"):
            convert(planned)
        assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize(
    ("name", "shape", "stays"),
    [
        ("blk.0.attn_q.weight", (2, 2), False),
        ("blk.0.attn_q.bias", (2, 2), True),
        ("blk.0.attn_norm.weight", (2, 2), True),
        ("blk.0.attn_q.weight", (2,), True),
        ("blk.0.ffn_gate_inp.weight", (2, 2), True),
        ("token_embd.weight", (2, 2), False),
    ],
)
def test_what_stays_float32(name: str, shape: tuple[int, ...], stays: bool) -> None:
    assert stays_float32(name, shape) is stays


@pytest.mark.parametrize("name", ["Q3_K", "Q4_K", "IQ4_XS"])
def test_a_single_k_type_for_all_matrices(tmp_path: Path, name: str) -> None:
    """Every matrix has the type, where a mix of llama.cpp's gives some more bits."""
    encoding = QuantizationEncoding[name]
    output = tmp_path / "a.gguf"
    notes, _ = run(DATA / "fireside-256", output, quantize=pure(encoding))
    assert not notes
    reader = GGUFReader(output)
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert {types[each] for each in types if not each.endswith("norm.weight")} == {name}
    assert reader.fields["general.file_type"].contents() == Scheme.named(name).mix.number


def test_rows_too_short_for_a_k_type_get_another(tmp_path: Path) -> None:
    output = tmp_path / "a.gguf"
    notes, _ = run(DATA / "tiny-mistral", output, quantize=Scheme.named("Q4_K"))
    assert any(re.search("to Q5_0, as rows are not whole Q4_K blocks of 256", n) for n in notes)
    types = {info.type_name for info in open_checkpoint(output).tensors.values()}
    assert types == {"F32", "Q5_0", "Q8_0"}


def test_file_types_are_those_of_llama_cpp() -> None:
    renamed = {"float32": "ALL_F32", "float16": "MOSTLY_F16", "bfloat16": "MOSTLY_BF16"}
    for kind, number in FILE_TYPES.items():
        name = renamed.get(str(kind.value), f"MOSTLY_{kind.name}")
        names = {name, f"{name}_S", f"{name}_MOE"}
        assert LlamaFileType(number).name in names


def test_constants_of_a_recipe(tmp_path: Path) -> None:
    """Text, truth values and numbers of either sign, alone and in lists, as gguf reads them."""
    said = {"a": -3, "b": 3_000_000_000 - (1 << 32), "c": ["x", "y"], "d": [True, False], "e": 0.5}
    recipe = tmp_path / "own.toml"
    lines = "".join(f'"own.{key}" = {json.dumps(value)}\n' for key, value in said.items())
    recipe.write_text(f'schema = 2\nname = "own"\nextends = "llama"\n[constants.gguf]\n{lines}')
    output = tmp_path / "own.gguf"
    run(DATA / "tiny-llama", output, recipe=str(recipe))
    fields = GGUFReader(output).fields
    assert {key: fields[f"own.{key}"].contents() for key in said} == said


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K_M", "Q4_K_M"])
def test_mixes_are_those_that_llama_cpp_made(tmp_path: Path, name: str) -> None:
    """llama.cpp quantized the bfloat16 file: the types and the bytes of all tensors."""
    run(DATA / "fireside-256", tmp_path / "a.gguf", quantize=Scheme.named(name))
    ours, theirs = (
        {t.name: (t.tensor_type, t.data.tobytes()) for t in GGUFReader(file).tensors}
        for file in (tmp_path / "a.gguf", DATA / "fireside-256" / f"{name}.gguf")
    )
    assert ours == theirs


def test_strict_lists_all_that_would_fall_back(tmp_path: Path) -> None:
    strict = replace(Scheme.named("Q4_K_M"), strict=True)
    with pytest.raises(ModelMismatch, match="cannot have the types") as caught:
        run(DATA / "tiny-llama", tmp_path / "a.gguf", quantize=strict)
    problems = "\n".join(caught.value.problems)
    for name in ("token_embd", "output", "ffn_down", "attn_q"):
        assert f"{name}.weight: rows are not whole Q" in problems
    run(DATA / "fireside-256", tmp_path / "a.gguf", quantize=strict)


@pytest.mark.parametrize("glob", ["blk.9.*", "*_norm.weight", "output.weight"])
def test_patterns_that_match_nothing_are_errors(tmp_path: Path, glob: str) -> None:
    """The head is tied, and norms are not quantized."""
    scheme = replace(
        Scheme.named("Q4_K_M"), overrides=(("*", DType.float16), (glob, DType.float16))
    )
    with pytest.raises(UsageError, match="matches no matrix"):
        run(DATA / "fireside-256", tmp_path / "a.gguf", quantize=scheme)
