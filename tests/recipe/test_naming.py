"""Naming of a model: never after the folder that it lies in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import UsageError
from maxtool.recipe import find_recipe, plan
from maxtool.recipe.naming import HF_NAME, check_name, model_name, size_label, title
from maxtool.weights import open_checkpoint

DATA = Path(__file__).parents[1] / "data"


def folder(place: Path, **config: Any) -> Path:
    """A small checkpoint whose configuration says more."""
    shutil.copytree(DATA / "tiny-llama", place)
    written = json.loads((place / "config.json").read_text()) | config
    (place / "config.json").write_text(json.dumps(written))
    return place


def named(source: Path) -> str:
    checkpoint = open_checkpoint(source)
    return model_name(plan(find_recipe(checkpoint), checkpoint))


def converted(source: Path, output: Path, name: str | None = None) -> Path:
    convert(prepare(Request(source, output, name=name)))
    return output


def gguf_name(file: Path) -> str:
    return str(GGUFReader(file).fields["general.name"].contents())


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("someone/TinyLlama-1.1B_chat", "TinyLlama 1.1B Chat"),
        ("tiny-llama", "Tiny Llama"),
        ("A Model of Mine", "A Model of Mine"),
        ("/home/someone/checkpoint-1000", "llama 43K"),
        ("./out", "llama 43K"),
        ("..", "llama 43K"),
        ("a/b/c", "llama 43K"),
        ("C:\\models\\llama", "llama 43K"),
        ("", "llama 43K"),
        ("  ", "llama 43K"),
        ("x" * 300, "llama 43K"),
        ("two\nlines", "llama 43K"),
        (7, "llama 43K"),
        (None, "llama 43K"),
    ],
)
def test_names_of_checkpoints(tmp_path: Path, said: object, name: str) -> None:
    assert named(folder(tmp_path / "folder-name", **{HF_NAME: said})) == name


def test_a_name_stays_on_the_way_there_and_back(tmp_path: Path) -> None:
    source = folder(tmp_path / "x", **{HF_NAME: "someone/small-llama"})
    there = converted(source, tmp_path / "there.gguf")
    assert gguf_name(there) == "Small Llama"
    assert named(there) == "Small Llama"
    back = converted(there, tmp_path / "back")
    assert json.loads((back / "config.json").read_text())[HF_NAME] == "Small Llama"
    assert gguf_name(converted(back, tmp_path / "again.gguf")) == "Small Llama"


def test_a_name_that_is_asked_for_goes_first(tmp_path: Path) -> None:
    source = folder(tmp_path / "x", **{HF_NAME: "someone/small-llama"})
    there = converted(source, tmp_path / "there.gguf", "mine: v1")
    assert gguf_name(there) == "mine: v1"
    assert gguf_name(converted(there, tmp_path / "other.gguf", "other")) == "other"
    for start in (source, there):
        folder_made = converted(start, tmp_path / f"from {start.stem}", "mine: v1")
        assert json.loads((folder_made / "config.json").read_text())[HF_NAME] == "mine: v1"


def test_a_folder_keeps_what_it_says_of_itself(tmp_path: Path) -> None:
    source = folder(tmp_path / "x", **{HF_NAME: "/somewhere"})
    kept = json.loads((converted(source, tmp_path / "y") / "config.json").read_text())
    assert kept[HF_NAME] == "/somewhere"


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "two\nlines", "a\0b"])
def test_names_that_no_file_should_carry(name: str) -> None:
    with pytest.raises(UsageError, match="--name takes 1 to 200"):
        check_name(name)


def test_safetensors_alone_have_no_name(tmp_path: Path) -> None:
    source, output = str(DATA / "tiny-llama"), str(tmp_path / "x.safetensors")
    result = CliRunner().invoke(app, ["convert", source, "-o", output, "--name", "x"])
    assert result.exit_code == 2
    assert "no place for --name" in result.stderr


@pytest.mark.parametrize("command", ["convert", "compile"])
def test_commands_refuse_a_name_before_they_work(tmp_path: Path, command: str) -> None:
    arguments = [command, str(DATA / "tiny-llama"), "-o", str(tmp_path / "x"), "--name", ""]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--name" in result.stderr


@pytest.mark.parametrize(
    ("elements", "label"),
    [
        (292_800, "293K"),
        (1_769_000, "1.8M"),
        (410_000, "410K"),
        (7_241_732_096, "7.2B"),
    ],
)
def test_size_label(elements: int, label: str) -> None:
    assert size_label(elements) == label


@given(st.integers(1, 10**13))
def test_size_label_as_the_gguf_package(elements: int) -> None:
    from gguf.utility import size_label as theirs

    assert size_label(elements) == theirs(elements, 0, 0, 0)


@pytest.mark.parametrize(
    ("folder", "name"),
    [("llama", "Llama"), ("TinyLlama-1.1B_chat", "TinyLlama 1.1B Chat"), ("", "Model")],
)
def test_title(folder: str, name: str) -> None:
    assert title(folder) == name
