"""Sources and outputs in users' words: paths, URLs, repositories, and names of other kinds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.cli.options import ALIASES, parse_dtype
from maxtool.errors import UsageError
from maxtool.weights import hub

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"
READING = {
    "convert": ["convert", "{}", "-o", "out.gguf"],
    "compile": ["compile", "{}", "-o", "out"],
    "recipes check": ["recipes", "check", "llama", "{}"],
    "recipes new": ["recipes", "new", "{}"],
}
NOWHERE = [["inspect-weights", "{}"], *READING.values()]


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; no repository is looked for on the network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path


def run(arguments: list[str], value: object = "") -> Result:
    return CliRunner().invoke(app, [argument.replace("{}", str(value)) for argument in arguments])


@pytest.mark.parametrize(
    "command",
    [
        ["convert", str(MODEL), "-o", "out.gguf", "--recipe", "{}"],
        ["compile", str(MODEL), "-o", "out", "--recipe", "{}"],
        ["recipes", "show", "{}"],
        ["recipes", "check", "{}", str(MODEL)],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_recipes_are_files(command: list[str]) -> None:
    result = run(command, "https://user:sesame@example.com/x.toml")
    assert result.exit_code == 2
    assert "error: recipes are not read from URLs\n  at: file https://example.com/x.toml" in (
        result.stderr
    )


@pytest.mark.parametrize("command", NOWHERE, ids=lambda command: command[0])
def test_repositories_are_no_paths(command: list[str], empty: Path) -> None:
    name = "meta-llama/Llama-3.2-1B"
    result = run(command, name)
    assert result.exit_code == 3
    assert f"hf download {name} --local-dir Llama-3.2-1B" in result.stderr
    assert "HF_HUB_OFFLINE is set" in result.stderr
    for path in (f"./{name}", f"{name}/"):
        assert "HF_HUB_OFFLINE" not in run(command, path).stderr
    (empty / "meta-llama").mkdir()
    error = run(command, name).stderr
    assert "hf download" not in error
    assert f"or hf://{name}, a repository of the Hub" in error


@pytest.mark.parametrize(
    "name", ["models/x.gguf", "a/b/c", "/org/model", "model", "../up", "a/b.pt"]
)
def test_other_paths_are_paths(name: str) -> None:
    assert not hub.looks_like_repository(Path(name))


@given(st.text(max_size=40))
def test_any_text_is_a_path_or_a_repository(text: str) -> None:
    if hub.looks_like_repository(Path(text)):
        assert text.count("/") == 1


@pytest.mark.parametrize("name", ["x.onnx", "x.bin", "x.PT", "x.json", "x.tar.gz"])
def test_names_of_what_is_not_written(name: str, empty: Path) -> None:
    result = run(["convert", str(MODEL), "-o", "{}"], name)
    assert result.exit_code == 2
    assert f"no {Path(name).suffix.lower()} files are written" in result.stderr
    assert "name it NAME.gguf, NAME.safetensors, NAME.npz, or a folder" in result.stderr
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("name", ["llama-3.2", "v1.5-chat", "x.d"])
def test_folders_may_have_dots(name: str) -> None:
    assert run(["convert", str(MODEL), "-o", "{}", "--dry-run"], name).exit_code == 0


def test_a_name_may_be_insisted_upon(empty: Path) -> None:
    assert run(["convert", str(MODEL), "-o", "x.bin", "--to", "gguf"]).exit_code == 0
    assert (empty / "x.bin").read_bytes()[:4] == b"GGUF"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("convert", "-"), ("convert", "https://localhost/x.gguf")),
        *(("compile", "-"), ("compile", "s3://bucket/x.gguf")),
    ],
)
def test_outputs_are_files(command: str, name: str, empty: Path) -> None:
    result = run([command, str(MODEL), "-o", "{}"], name)
    assert (result.exit_code, list(empty.iterdir())) == (2, [])
    assert "error: " in result.stderr and "help: " in result.stderr


@pytest.mark.parametrize("command", ["convert", "compile"])
def test_a_missing_folder_says_how_to_make_it(command: str, empty: Path) -> None:
    place = os.path.join("a b", "c")  # noqa: PTH118 - what a user types
    result = run([command, str(MODEL), "-o", "{}"], os.path.join(place, "x.gguf"))  # noqa: PTH118
    assert result.exit_code == 2
    assert f"mkdir -p '{empty.resolve() / place}'" in result.stderr


@pytest.mark.parametrize("name", [*ALIASES, "FP16", "bfloat16"])
def test_names_of_element_types(name: str) -> None:
    result = parse_dtype(name)
    assert result is not None
    assert result.value == ALIASES.get(name.lower(), name.lower())


def test_other_element_types() -> None:
    with pytest.raises(UsageError, match="is not one of float32, float16, bfloat16"):
        parse_dtype("float8")
