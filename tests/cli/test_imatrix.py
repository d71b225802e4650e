"""``maxtool imatrix``: what it says and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.weights.importance_file import read_importance
from tests.runtime import tiny_artifact as tiny

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-mixtral"
LAYERS, IN_A_LAYER, VOCABULARY = 2, 8, 61
TEXT = "Once upon a time there was a little girl named Lily.\n" * 20


def maxtool(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "80"})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a decoder that has no tokenizer, and one that has a table for logits."""
    root = tmp_path_factory.mktemp("imatrix")
    done = maxtool("compile", MODEL, "-o", root / "decoder")
    assert done.exit_code == 0, done.output
    tiny.make(root / "table", tiny.compile_module(root), [7] * 40, 1)
    np.save(root / "ids.npy", np.arange(200) % VOCABULARY)
    (root / "text.txt").write_text(TEXT, encoding="utf-8")
    (root / "empty.txt").write_text("", encoding="utf-8")
    return root


def test_both_forms_say_the_same(root: Path, tmp_path: Path) -> None:
    words = ("imatrix", root / "decoder", "--tokens", root / "ids.npy", "--context", 24)
    files = [tmp_path / "a.gguf", tmp_path / "a.dat"]
    for file in files:
        done = maxtool(*words, "-o", file)
        assert done.exit_code == 0, done.output
        says = f"wrote {file}: importance for {LAYERS * IN_A_LAYER} tensors, from 8 windows of 24"
        assert done.stdout.split() == [*says.split(), "tokens"]
    newer, older = map(read_importance, files)
    assert (newer.chunks, newer.dataset) == (older.chunks, older.dataset)
    assert newer.columns.keys() == older.columns.keys()
    for name, columns in newer.columns.items():
        np.testing.assert_allclose(columns, older.columns[name], rtol=1e-6)


def test_json_and_the_head(root: Path, tmp_path: Path) -> None:
    words = ("--tokens", root / "ids.npy", "--windows", 2, "--process-output", "--json")
    done = maxtool("imatrix", root / "decoder", *words, "-o", tmp_path / "a.gguf")
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["schema"] == "maxtool.imatrix/1"
    assert (content["context"], content["windows"], content["tokens"]) == (64, 2, 128)
    matrices = {each["name"]: each for each in content["matrices"]}
    assert matrices["output.weight"]["columns"] == 28
    stack = matrices["blk.1.ffn_down_exps.weight"]
    assert (stack["columns"], stack["experts"], stack["rows"]) == (36, 5, 2 * 128)
    assert matrices["blk.0.attn_q.weight"]["experts"] is None


def test_experts_that_are_never_used_are_told(root: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.full(8, 3))
    words = ("--tokens", tmp_path / "ids.npy", "--context", 8, "-o", tmp_path / "a.gguf")
    done = maxtool("imatrix", root / "decoder", *words)
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert "blk.0.ffn_down_exps.weight: " in said
    assert "of 5 experts never used" in said


REFUSED: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no text": (("table",), 2, "give a text, or token ids with --tokens"),
    "two texts": (("table", "text.txt", "--tokens", "ids.npy"), 2, "give a text, or token ids"),
    "an empty text": (("table", "empty.txt"), 3, "the text has 1 tokens, and a window has 48"),
    "no tokenizer": (("decoder", "text.txt"), 4, "this artifact has no tokenizer"),
    "a short text": (("decoder", "--tokens", "ids.npy", "--windows", "0"), 2, "0 windows"),
    "a large window": (("decoder", "--tokens", "ids.npy", "--context", "65"), 4, "holds 64 tokens"),
    "no recipe": (("table", "text.txt"), 4, "the recipe 'none', which maxtool does not come with"),
    "no matrices": (("table", "text.txt", "--recipe", "llama"), 4, "it has no matrices"),
    "another recipe": (("table", "text.txt", "--recipe", "lama"), 2, "there is no recipe"),
    "no file": (("decoder", "--tokens", "nowhere.npy"), 3, "nowhere.npy"),
    "no model": (("nowhere", "text.txt"), 3, "no compiled model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, root: Path, tmp_path: Path) -> None:
    words, code, says = REFUSED[name]
    if name == "an empty text":
        words = (*words, "--recipe", "llama")
    arguments = [root / word if (root / word).exists() else word for word in words]
    done = maxtool("imatrix", *arguments, "-o", tmp_path / "a.gguf")
    assert done.exit_code == code, done.output
    assert says in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_an_existing_file_stays(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(b"mine")
    words = ("imatrix", root / "decoder", "--tokens", root / "ids.npy", "-o", file)
    assert maxtool(*words).exit_code == 2
    assert file.read_bytes() == b"mine"
    assert maxtool(*words, "--force").exit_code == 0
    assert read_importance(file).chunks == 3
