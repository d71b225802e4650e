"""Names, types and metadata edited on the way, and copies without a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.conversion.edit_request import renamed
from maxtool.weights import open_checkpoint

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
TENSORS = MODEL / "model.safetensors"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def done(*arguments: str | Path) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("model.layers.0.q.weight", "model.layers", "blocks", "blocks.0.q.weight"),
        ("model.layers.0.q.weight", "model", "", "layers.0.q.weight"),
        ("model.layers.0.q.weight", "q", "a.query", "model.layers.0.a.query.weight"),
        ("model.layers.0.q.weight", "layers.*", "h.*.attn", "model.h.0.attn.q.weight"),
        ("model.layers.0.q.weight", "lay", "x", "model.layers.0.q.weight"),
        ("a.b.a.b", "a.b", "c", "c.c"),
        ("a.b", "*.*", "*.x.*", "a.x.b"),
    ],
)
def test_renames_are_of_whole_segments(name: str, old: str, new: str, expected: str) -> None:
    assert renamed(name, old, new) == expected


SEGMENTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(".".join)


@given(SEGMENTS, SEGMENTS)
def test_a_rename_to_itself_changes_nothing(name: str, old: str) -> None:
    assert renamed(name, old, old) == name


def test_tensors_are_selected_renamed_and_cast(tmp_path: Path) -> None:
    done(
        *(MODEL, "-o", tmp_path / "m.safetensors", "--include", "model.layers.*"),
        *("--exclude", "*.1.*", "--rename", "model.layers=h", "--rename", "self_attn=attn"),
        *("--cast", "*=float16", "--cast", "h.*.mlp.*=bf16"),
    )
    before = load_file(TENSORS)
    expected = {
        name.replace("model.layers", "h").replace("self_attn", "attn"): array.astype(
            ml_dtypes.bfloat16 if ".mlp." in name else np.float16
        )
        for name, array in before.items()
        if name.startswith("model.layers.0.")
    }
    checkpoint = open_checkpoint(tmp_path / "m.safetensors")
    assert set(checkpoint.tensors) == set(expected)
    for name, array in expected.items():
        assert checkpoint.read(name).data.tobytes() == array.tobytes()


def test_integers_are_never_cast(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    source = tmp_path / "a" / "a.safetensors"
    save_file({"ids": np.arange(9), "w": np.ones(3, np.float32)}, source)
    for option in ("--cast=*=float16", "--dtype=float16"):
        output = tmp_path / "b.npz"
        done(source, "-o", output, "--no-recipe", option, "--force")
        with np.load(output) as arrays:
            assert (arrays["ids"].dtype, arrays["w"].dtype) == (np.int64, np.float16)


def test_every_format_to_every_format(tmp_path: Path) -> None:
    """Copy from one to the next: names and bits arrive as they left."""
    rng = np.random.default_rng(0)
    arrays = {
        "a.f32": rng.normal(size=(3, 4)).astype(np.float32),
        "a.f16": rng.normal(size=(2, 3, 4)).astype(np.float16),
        "a.f64": rng.normal(size=5),
        "a.i32": rng.integers(-9, 9, (7,), np.int32),
        "a.i64": rng.integers(-9, 9, (1, 2), np.int64),
        "scalar": np.float32(7),
        "empty": np.empty((0, 3), np.float32),
    }
    source = tmp_path / "0.npz"
    np.savez(source, **arrays)
    for number, suffix in enumerate(("safetensors", "gguf", "npz", "gguf", "safetensors"), 1):
        output = tmp_path / str(number) / f"m.{suffix}"
        output.parent.mkdir()
        done(source, "-o", output, "--no-recipe")
        checkpoint = open_checkpoint(output)
        assert set(checkpoint.tensors) == set(arrays)
        for name, array in arrays.items():
            data = checkpoint.read(name).data
            assert (data.dtype, data.shape) == (array.dtype, array.shape)
            assert data.tobytes() == array.tobytes()
        source = output


def test_npz_is_what_numpy_reads_and_has_the_bytes_planned(tmp_path: Path) -> None:
    planned = json.loads(run(MODEL, "-o", tmp_path / "m.npz", "--dry-run", "--json").stdout)
    done(MODEL, "-o", tmp_path / "m.npz")
    assert (tmp_path / "m.npz").stat().st_size == planned["bytes"]
    expected = load_file(TENSORS)
    with np.load(tmp_path / "m.npz") as read:
        assert set(read.files) == set(expected)
        assert all(read[name].tobytes() == expected[name].tobytes() for name in expected)
    refused = run(MODEL, "-o", tmp_path / "b.npz", "--dtype", "bfloat16")
    assert refused.exit_code == 4
    assert "NumPy has no bfloat16" in refused.stderr


def test_a_plain_copy_of_gguf_is_the_same_file(tmp_path: Path) -> None:
    done(MODEL, "-o", tmp_path / "a.gguf", "--quantize", "Q8_0")
    done(tmp_path / "a.gguf", "-o", tmp_path / "b.gguf", "--no-recipe")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    done(tmp_path / "a.gguf", "-o", tmp_path / "c.safetensors", "--no-recipe")
    assert set(open_checkpoint(tmp_path / "c.safetensors").tensors) == set(
        open_checkpoint(tmp_path / "a.gguf").tensors
    )


def test_keys_of_gguf_have_types(tmp_path: Path) -> None:
    settings = (
        *("--set", "general.name=Me", "--set", "llama.context_length=99"),
        *("--set", "x.small=u8:7", "--set", 'x.list=string[]:["a", "b"]'),
        *("--set", "x.sizes=float32[]:[1, 2.5]", "--set", "x.on=bool:true"),
        *("--remove", "general.quantization_version"),
    )
    done(MODEL, "-o", tmp_path / "m.gguf", *settings)
    fields = gguf.GGUFReader(tmp_path / "m.gguf").fields
    types = gguf.GGUFValueType
    expected = {
        "general.name": ([types.STRING], "Me"),
        "llama.context_length": ([types.UINT32], 99),
        "x.small": ([types.UINT8], 7),
        "x.list": ([types.ARRAY, types.STRING], ["a", "b"]),
        "x.sizes": ([types.ARRAY, types.FLOAT32], [1.0, 2.5]),
        "x.on": ([types.BOOL], True),
    }
    assert {k: (fields[k].types, fields[k].contents()) for k in expected} == expected
    assert "general.quantization_version" not in fields
    assert "llama.block_count" in fields


def test_the_file_type_is_that_of_what_is_written(tmp_path: Path) -> None:
    """Say 15, as llama.h numbers Q4_K_M, of that mix only."""
    model, mix = MODEL.parent / "fireside-256", tmp_path / "q.gguf"
    done(model, "-o", mix, "--quantize", "Q4_K_M")
    done(model, "-o", tmp_path / "f.gguf", "--quantize", "Q4_K_M", "--cast", "*=float32")
    done(mix, "-o", tmp_path / "p.gguf", "--no-recipe", "--dtype", "float16")
    done(mix, "-o", tmp_path / "n.gguf", "--no-recipe", "--exclude", "*norm*")
    types = {
        name: open_checkpoint(tmp_path / f"{name}.gguf").metadata["general.file_type"]
        for name in "qfpn"
    }
    assert types == {"q": 15, "f": 0, "p": 1, "n": 15}
    written = open_checkpoint(tmp_path / "p.gguf").tensors
    vectors = {info.type_name for info in written.values() if len(info.shape) == 1}
    assert vectors == {"F32"}
    assert {info.type_name for info in written.values() if len(info.shape) > 1} == {"F16"}


def test_metadata_of_safetensors_and_config_json(tmp_path: Path) -> None:
    done(MODEL, "-o", tmp_path / "m.safetensors", "--set", "who=me", "--remove", "format")
    with safe_open(tmp_path / "m.safetensors", "np") as file:
        assert file.metadata() == {"who": "me"}
    edits = ("--set", "a.b=8.5", "--set", "note=text", "--remove", "head_dim")
    done(MODEL, "-o", tmp_path / "m", *edits)
    before, after = (json.loads((f / "config.json").read_text()) for f in (MODEL, tmp_path / "m"))
    del before["head_dim"]
    assert {**before, "a": {"b": 8.5}, "note": "text"} == {
        key: value for key, value in after.items() if key in {*before, "a", "note"}
    }
    assert "head_dim" not in after


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("m.gguf", ["--include", "nothing.*"], "no tensor has such a name"),
        ("m.gguf", ["--exclude", "*"], "leave no tensor"),
        ("m.gguf", ["--rename", "bloc=x"], "changes no name"),
        ("m.safetensors", ["--rename", "layers.*=layers.0"], "several tensors one name"),
        ("m.gguf", ["--rename", "x"], "two sides"),
        ("m.gguf", ["--cast", "*=int8"], "not one of"),
        ("m.gguf", ["--set", "new=7"], "has no type yet"),
        ("m.gguf", ["--set", "new=uint8:300"], "not a uint8"),
        ("m.gguf", ["--set", "new=float32:1e300"], "not a float32"),
        ("m.gguf", ["--set", "new=f32[]:[1, -1e300]"], "not a f32"),
        ("m.gguf", ["--set", "general.name=\udcff"], "is not UTF-8"),
        ("m.gguf", ["--set", r'new=string[]:["\ud800"]'], "not a string"),
        ("m.gguf", ["--set", "\udcff=a"], "is not UTF-8"),
        ("m.gguf", ["--remove", "\udcff"], "is not UTF-8"),
        ("m.gguf", ["--rename", "blk=\udcff"], "is not UTF-8"),
        ("m.gguf", ["--include", "\udcff"], "is not UTF-8"),
        ("m", ["--set", "rope_theta=NaN"], "no number NaN"),
        ("m", ["--set", "a=" + 66 * "[" + 66 * "]"], "nested more than 64"),
        ("m", ["--set", "a=" + 90_000 * "["], "nested more than 64"),
        ("m", ["--set", 2_000 * "a." + "b=1"], "more than 64 tables"),
        ("m.gguf", ["--set", "a=string[]:" + 90_000 * "["], "nested more than 64"),
        ("m", ["--set", "rope_theta=[1e999]"], "no number [1e999]"),
        ("m.gguf", ["--rename", "blk.*=h.*.*"], "needs one before it"),
        ("m.gguf", ["--set", "split.no=uint16:3"], "written with the splits"),
        ("m.gguf", ["--set", "general.alignment=uint32:48"], "power of two"),
        ("m.gguf", ["--remove", "general.architecture"], "no reader opens a GGUF file without it"),
        ("m.gguf", ["--remove", "general.nam"], "did you mean 'general.name'"),
        ("m.npz", ["--set", "a=b"], "no metadata"),
        ("m.gguf", ["--no-recipe", "--quantize", "Q8_0"], "exclude each other"),
        ("m.gguf", ["--no-recipe", "--recipe", "llama"], "exclude each other"),
        ("m.bin", [], "pickles"),
        ("m.pt", [], "pickles"),
    ],
)
def test_usage(tmp_path: Path, output: str, options: list[str], message: str) -> None:
    result = run(MODEL, "-o", tmp_path / output, *options)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("plain", [[], ["--no-recipe"]])
def test_what_is_not_finite_is_cast_only_where_that_is_asked_for(
    tmp_path: Path, plain: list[str]
) -> None:
    arrays = load_file(TENSORS)
    name = "model.layers.0.mlp.up_proj.weight"
    arrays[name][0, :4] = [np.nan, np.inf, -np.inf, 1e6]
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "config.json").write_bytes((MODEL / "config.json").read_bytes())
    save_file(arrays, tmp_path / "s" / "model.safetensors")
    command = (tmp_path / "s", "-o", tmp_path / "m.safetensors", *plain)
    refused = run(*command, "--dtype", "float16")
    assert refused.exit_code == 4
    assert "1 of 4000 values do not fit" in refused.stderr
    refused = run(*command, "--dtype", "bfloat16")
    assert refused.exit_code == 4
    assert "1 NaN and 2 infinite" in refused.stderr
    assert "--allow-nonfinite" in refused.stderr
    written = run(*command, "--dtype", "float16", "--allow-nonfinite")
    assert written.exit_code == 0
    assert "1 beyond the range" in written.stderr.replace("\n", " ")
    row = load_file(tmp_path / "m.safetensors")[name][0, :4]
    assert row.tobytes() == np.array([np.nan, np.inf, -np.inf, np.inf], np.float16).tobytes()
    copied = run(*command, "--force")
    assert copied.exit_code == 0
    assert "1 NaN and 2 infinite" in copied.stderr
