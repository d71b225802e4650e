"""Layers behind the pooling, which a folder keeps in folders of their own and GGUF in one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.recipe import find_recipe, plan
from maxtool.weights import open_checkpoint
from tests.conversion.asked import run
from tests.data.dense_folders import IN_GGUF, RECORDED, write
from tests.variants.written_files import described

KNOWN: dict[str, Any] = json.loads(RECORDED.read_text())
TWO = IN_GGUF[0]
LAYERS = ("2_Dense", "3_Dense")
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "model", TWO)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", IN_GGUF)
def test_a_file_as_llama_cpp_makes_it(name: str, tmp_path: Path) -> None:
    told = run(
        "convert", write(tmp_path / "model", name), "-o", tmp_path / "x.gguf", "--name", "Model"
    )
    assert "own converter leaves these layers out unless it is told otherwise" in told
    found, known = described(tmp_path / "x.gguf"), KNOWN[name]["gguf"]
    assert found["tensors"] == known["tensors"]
    assert list(found["tensors"]) == list(known["tensors"])
    ours, theirs = (
        [(key, value) for key, value in each["keys"].items() if "rope.scaling" not in key]
        for each in (found, known)
    )
    assert [pair for pair in ours if pair[0] not in ADDED] == theirs


# What llama.cpp's own converter leaves out, as the notes say.
ADDED = ("gemma-embedding.attention.scale", "gemma-embedding.attention.sliding_window_pattern")


@pytest.mark.parametrize("options", [(), ("--shard-size", "4000")])
def test_back_to_a_folder(folder: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    run("convert", folder, "-o", tmp_path / "x.gguf")
    run("convert", tmp_path / "x.gguf", "-o", tmp_path / "back", *options, "--verify", "--sha256")
    for layer in LAYERS:
        back, there = (load_file(each / layer / WEIGHTS) for each in (tmp_path / "back", folder))
        assert back.keys() == there.keys() == {"linear.weight"}
        np.testing.assert_array_equal(back["linear.weight"], there["linear.weight"])
        configs = [
            json.loads((each / layer / "config.json").read_text())
            for each in (tmp_path / "back", folder)
        ]
        assert configs[0] == configs[1]
    listed = json.loads((tmp_path / "back" / "modules.json").read_text())
    kinds = [each["type"].rpartition(".")[2] for each in listed]
    assert kinds == ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    if options:
        index = json.loads((tmp_path / "back" / f"{WEIGHTS}.index.json").read_text())
        assert not any("dense" in name for name in index["weight_map"])
        assert len({*index["weight_map"].values()}) > 1
    sums = (tmp_path / "back" / "SHA256SUMS").read_text()
    assert f"  2_Dense/{WEIGHTS}" in sums


def test_a_folder_of_another_type(folder: Path, tmp_path: Path) -> None:
    run("convert", folder, "-o", tmp_path / "out", "--dtype", "float16")
    assert files(tmp_path / "out") == files(folder)
    for layer in LAYERS:
        found = load_file(tmp_path / "out" / layer / WEIGHTS)["linear.weight"]
        there = load_file(folder / layer / WEIGHTS)["linear.weight"]
        np.testing.assert_array_equal(found, there.astype(np.float16))
        config = (tmp_path / "out" / layer / "config.json").read_bytes()
        assert config == (folder / layer / "config.json").read_bytes()
    # What is replaced is known to be a checkpoint's.
    run("convert", folder, "-o", tmp_path / "out", "--force")
    (tmp_path / "out" / "2_Dense" / "other").write_text("")
    told = run("convert", folder, "-o", tmp_path / "out", "--force", code=2)
    assert "files that do not belong to a checkpoint" in told


def test_in_shares(folder: Path, tmp_path: Path) -> None:
    options = ["--shard-size", "4000"]
    run("convert", folder, "-o", tmp_path / "whole", *options)
    shares = ["convert", folder, "-o", tmp_path / "out", *options]
    for share in ("1/2", "2/2"):
        run(*shares, "--shards", share)
    run(*shares, "--shards", "finish")
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    for name in files(tmp_path / "whole"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_weights_of_torch(folder: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = folder / "2_Dense" / WEIGHTS
    torch.save({n: torch.from_numpy(a) for n, a in load_file(file).items()}, file.with_name("x"))
    there = load_file(file)["linear.weight"]
    file.unlink()
    file.with_name("x").rename(file.with_name("pytorch_model.bin"))
    run("convert", folder, "-o", tmp_path / "out")
    np.testing.assert_array_equal(
        load_file(tmp_path / "out" / "2_Dense" / WEIGHTS)["linear.weight"], there
    )


@pytest.mark.parametrize("options", [("--to", "safetensors"), ("--to", "npz")])
def test_in_one_file(folder: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    output = tmp_path / f"x.{options[1]}"
    run("convert", folder, "-o", output)
    names = {*open_checkpoint(output).tensors}
    assert "sentence_transformers.dense.1.linear.weight" in names


def test_what_is_not_there(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / "3_Dense")
    told = run("convert", folder, "-o", tmp_path / "x.gguf", code=3)
    assert "3_Dense" in told
    write(tmp_path / "again", TWO)
    (tmp_path / "again" / "3_Dense" / WEIGHTS).unlink()
    told = run("convert", tmp_path / "again", "-o", tmp_path / "x.gguf", code=4)
    assert "missing: sentence_transformers.dense.1.linear.weight [12, 40]" in told


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"use_residual": True}, "use_residual = True is not supported (False is)"),
        ({"module_input_name": "token_embeddings"}, "'token_embeddings' is not supported"),
        ({"module_output_name": "other"}, "'other' is not supported"),
        ({"activation_function": "torch.nn.modules.activation.Mish"}, "activation.Mish"),
        ({"out_features": 0}, "is not a list of positive integers"),
        ({"out_features": 39}, "needs [39, 12], found [40, 12]"),
        ({"bias": 1}, "is not a list of truth values"),
        ({"bias": True}, "sentence_transformers.dense.0.linear.bias"),
    ],
)
def test_what_is_not_supported(
    folder: Path, tmp_path: Path, change: dict[str, object], what: str
) -> None:
    file = folder / "2_Dense" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert what in run("convert", folder, "-o", tmp_path / "out", code=4)


def test_spellings_that_are_usual(folder: Path) -> None:
    file = folder / "2_Dense" / "config.json"
    names = {"module_input_name": "sentence_embedding", "module_output_name": None}
    names |= {"use_residual": False, "activation_function": "torch.nn.Identity"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **names}))
    checkpoint = open_checkpoint(folder)
    plan(find_recipe(checkpoint), checkpoint).check()


@pytest.mark.parametrize("name", ["x.safetensors", "x.npz", "x.gguf"])
def test_carried_without_a_recipe_into_one_file(folder: Path, tmp_path: Path, name: str) -> None:
    run("convert", folder, "-o", tmp_path / name, "--no-recipe")
    assert "sentence_transformers.dense.1.linear.weight" in open_checkpoint(tmp_path / name).tensors


def test_carried_without_a_recipe(folder: Path, tmp_path: Path) -> None:
    run("convert", folder, "-o", tmp_path / "out", "--no-recipe", "--to", "hf")
    assert files(tmp_path / "out") == files(folder)
    for layer in LAYERS:
        found, there = (load_file(each / layer / WEIGHTS) for each in (tmp_path / "out", folder))
        np.testing.assert_array_equal(found["linear.weight"], there["linear.weight"])


def inspected(folder: Path, *options: str) -> str:
    result = CliRunner().invoke(app, ["inspect-weights", str(folder), *options])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_inspected_with_their_folders(folder: Path) -> None:
    report = json.loads(inspected(folder, "--json"))
    listed = {each["name"]: each["shape"] for each in report["tensors"]}
    assert listed["2_Dense/linear.weight"] == [40, 12]
    assert listed["3_Dense/linear.weight"] == [12, 40]
    assert report["recognition"]["recipe"] == "gemma_embedding"
    assert report["recognition"]["problems"] == []
    assert "2_Dense/linear.weight" in inspected(folder, "--flat")
    first = load_file(folder / "2_Dense" / WEIGHTS)["linear.weight"][0, 0]
    values = json.loads(inspected(folder, "--values", "2_Dense/linear.weight[0, 0]", "--json"))
    assert values["values"][0]["values"] == pytest.approx(float(first))
    inspected(folder, "--diff", str(folder), "--stats")
    (folder / "2_Dense" / WEIGHTS).write_bytes(b"")
    assert "2_Dense" in run("inspect-weights", folder, code=3)
