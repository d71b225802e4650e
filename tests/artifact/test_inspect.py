"""``inspect-weights`` on what ``compile`` wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.cli.units import shape
from maxtool.errors import MalformedFile
from maxtool.weights import open_checkpoint
from tests.artifact.measure import Compile


def show(*arguments: object, code: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["inspect-weights", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_matrices_are_those_of_the_checkpoint(compiled: Compile, data: Path, dtype: str) -> None:
    """Packed for their kernels, several rows beside each other, the last block not full."""
    from maxtool.dtype import DType

    source = open_checkpoint(data / "tiny-mixtral")
    actual = open_checkpoint(compiled(data / "tiny-mixtral", dtype=DType(dtype)))
    packed = [info for info in actual.tensors.values() if hasattr(info, "layout")]
    assert any(
        info.shape[-2] * info.shape[-1] < info.nbytes // info.dtype.size_in_bytes for info in packed
    )
    assert any(len(info.shape) == 3 for info in packed)
    for ours, theirs in (
        ("embed.weight", "model.embed_tokens.weight"),
        ("layers.0.attn.q.weight", "model.layers.0.self_attn.q_proj.weight"),
        ("norm.weight", "model.norm.weight"),
    ):
        expected = source.read(theirs).data.astype(np.float32)
        array = actual.read(ours).data
        assert array.shape == expected.shape
        close = 1e-2 if dtype == "bfloat16" else 0
        np.testing.assert_allclose(array.astype(np.float32), expected, rtol=close)


def test_what_is_shown(compiled: Compile, data: Path) -> None:
    folder = compiled(data / "tiny-llama")
    stdout, _ = show(folder)
    assert "artifact · 2 files · 23 tensors" in stdout
    assert "compiled from llama · for cpu · float32 · context 64" in stdout
    assert "16 of 23 weights packed in blocks of rows, shown unpacked" in stdout
    assert show(folder / "manifest.json", "--flat")[0].count(shape((97, 40))) == 2
    assert "97" in show(folder, "--values", "embed.weight[-1, 0:3]", "--stats")[0]
    assert "vocab_size" in show(folder, "--metadata")[0]
    assert show(folder, "--stats", "--sha256")[0].count("weights.bin") == 1


def test_as_json(compiled: Compile, data: Path) -> None:
    folder = compiled(data / "tiny-llama")
    content = json.loads(show(folder, "--json", "--metadata", "--stats")[0])
    assert content["format"] == "artifact"
    assert content["metadata"]["recipe"] == "llama"
    assert content["recognition"]["recipe"] is None
    tensors = {one["name"]: one for one in content["tensors"]}
    placed = json.loads((folder / "manifest.json").read_text())["weights"]["tensors"]
    assert set(tensors) == {one["name"] for one in placed}
    for one in placed:
        shown = tensors[one["name"]]
        assert (shown["offset"], shown["bytes"]) == (one["offset"], one["nbytes"])
        assert shown.get("layout", shown["shape"]) == one["shape"]
        assert shown["stats"]["count"] == shown["parameters"]


@pytest.mark.long
def test_an_artifact_for_several_devices(compiled: Compile, data: Path) -> None:
    result = open_checkpoint(compiled(data / "tiny-llama", devices=2))
    halves = [result.read(f"{rank}.layers.0.mlp.up.weight").data for rank in (0, 1)]
    source = open_checkpoint(data / "tiny-llama").read("model.layers.0.mlp.up_proj.weight")
    np.testing.assert_array_equal(np.concatenate(halves), source.data)
    assert [file.name for file in result.files] == [
        "manifest.json",
        "weights.0.bin",
        "weights.1.bin",
    ]


def test_an_artifact_is_no_source(compiled: Compile, data: Path, tmp_path: Path) -> None:
    folder = compiled(data / "tiny-llama")
    for command in ("convert", "compile"):
        done = CliRunner().invoke(app, [command, str(folder), "-o", str(tmp_path / "out.gguf")])
        assert done.exit_code == 4
        assert "a compiled model, not a checkpoint" in done.stderr


def test_a_damaged_manifest(compiled: Compile, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(compiled(data / "tiny-llama"), folder)
    text = (folder / "manifest.json").read_text()
    for wrong in (
        text[:3000],
        text.replace('"offset": 0', '"offset": 64'),
        text.replace("maxtool.artifact/", "maxtool.artifact/9"),
    ):
        (folder / "manifest.json").write_text(wrong)
        with pytest.raises(MalformedFile, match=r"manifest\.json"):
            open_checkpoint(folder)


def test_run_on_a_checkpoint(data: Path, sample: Path) -> None:
    for source in (data / "tiny-llama", data / "tiny-llama" / "model.safetensors"):
        done = CliRunner().invoke(app, ["run", str(source), "--ids", "1", "--json"])
        error = json.loads(done.stdout)["error"]
        assert done.exit_code == error["exit_code"] == 3
        assert error["class"] == "InputError"
        assert error["file"] == str(source)
        assert f"maxtool compile {source} -o " in error["hint"]
    done = CliRunner().invoke(app, ["embed", str(sample / "nothing"), "--ids", "1"])
    assert "no such folder" in done.stderr


def test_the_same_error_from_both_programs(compiled: Compile, data: Path) -> None:
    import subprocess
    import sys

    folder = compiled(data / "tiny-llama")
    asked = ["--ids", ",".join(["1"] * 70), "--json"]
    ours = CliRunner().invoke(app, ["run", str(folder), *asked])
    command = [sys.executable, str(folder / "run.py"), *asked]
    own = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ours.exit_code == own.returncode == 4
    assert json.loads(ours.stdout) == json.loads(own.stdout)
    assert ours.stderr == own.stderr
    fields = {"class", "what", "file", "tensor", "offset", "problems", "hint", "exit_code"}
    assert set(json.loads(own.stdout)["error"]) == fields
    for wrong in (["--ids", "1", "--prompt", "x", "--json"], ["--top-q", "1", "--json"]):
        done = subprocess.run([*command[:2], *wrong], capture_output=True, text=True, check=False)
        assert (done.returncode, json.loads(done.stdout)["error"]["class"]) == (2, "UsageError")
