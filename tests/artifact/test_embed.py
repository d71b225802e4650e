"""Embeddings of texts: from Python, by an artifact's own program, and by ``maxtool embed``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.runtime import loader
from maxtool.runtime.loader.embedder import Embedder
from tests.artifact.making import run
from tests.artifact.measure import BOUND, Compile, error, recorded


@pytest.fixture(scope="module")
def folder(compiled: Compile, data: Path) -> Path:
    return compiled(data / "tiny-bert")


@pytest.fixture(scope="module")
def model(folder: Path) -> loader.Model:
    return loader.load(folder)


def test_vectors_are_those_of_transformers(model: loader.Model, data: Path) -> None:
    expected = recorded(data / "tiny-bert")
    actual = model.embed(list(map(str, expected["texts"])))
    assert actual.dtype == np.float32
    assert error(actual, expected["text_means"]) <= BOUND
    alone = [model.embed(str(text))[0] for text in expected["texts"]]
    assert error(np.stack(alone), expected["text_means"]) <= BOUND


WORDS = st.lists(st.sampled_from(["he", "sat", "beaver", "日本", "Ünï", "."]), max_size=30)


@settings(max_examples=15)
@given(st.lists(WORDS.map(" ".join), max_size=20), st.integers(1, 5))
def test_order_and_batches_change_nothing(
    model: loader.Model, texts: list[str], batch: int
) -> None:
    result = model.embed(iter(texts), batch)
    assert result.shape == (len(texts), 20)
    for text, vector in zip(texts, result, strict=True):
        np.testing.assert_allclose(vector, model.embed(text)[0], rtol=1e-4, atol=1e-5)


def test_long_texts_are_cut_and_counted(model: loader.Model) -> None:
    long = "he sat down. " * 30
    embedder = Embedder(model)
    result = np.concatenate(list(embedder.stream([long, "he sat", [5] * 50])))
    assert (embedder.texts, embedder.truncated) == (3, 2)
    ids = model.open_tokenizer().encode(long).ids
    cut = model.embed([[*ids[:39], ids[-1]]])  # the token that ends a text stays
    np.testing.assert_allclose(result[0], cut[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result[2], model.embed([[5] * 40])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "what"),
    [([[]], "text 1 has no tokens"), (["he", "a\ud800"], "text 2 is not valid text")],
)
def test_texts_that_cannot_be_embedded(model: loader.Model, texts: list[object], what: str) -> None:
    with pytest.raises(loader.BadInput, match=what):
        model.embed(texts)  # type: ignore[arg-type]


def test_ids_outside_the_vocabulary(model: loader.Model) -> None:
    with pytest.raises(loader.DoesNotFit, match="input_ids has values from 0 to 160"):
        model.embed([[5, 160], [3]])
    with pytest.raises(loader.BadUsage, match="a batch of 0 texts"):
        model.embed("he", batch=0)


def test_the_command_prints_a_json_array_for_each_text(folder: Path, model: loader.Model) -> None:
    stdout, stderr = run("embed", folder, "--text", "he sat", "--text", "down.")
    lines = [json.loads(line) for line in stdout.splitlines()]
    np.testing.assert_array_equal(np.float32(lines), model.embed(["he sat", "down."]))
    assert "2 texts of" in stderr
    assert run("embed", folder, "--text", "he sat", "-q")[1] == ""


def test_a_file_of_lines_into_a_file(folder: Path, model: loader.Model, tmp_path: Path) -> None:
    lines = [f"he sat {'down. ' * n}" for n in range(70)]
    source, output = tmp_path / "lines.txt", tmp_path / "out.npy"
    source.write_bytes("\r\n".join(lines).encode())
    stdout, stderr = run("embed", folder, "--file", source, "-o", output, "--batch", 4)
    assert stdout == f"{output} float32[70, 20]\n"
    assert "of 70 texts were cut" in stderr
    np.testing.assert_allclose(np.load(output), model.embed(lines), rtol=1e-4, atol=1e-5)
    assert "--force replaces it" in run("embed", folder, "--text", "x", "-o", output, code=2)[1]
    run("embed", folder, "--text", "x", "-o", output, "--force")
    assert np.load(output).shape == (1, 20)


def test_no_lines_are_no_vectors(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    run("embed", folder, "--file", tmp_path / "empty", "-o", tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (0, 20)


def test_one_json_object(folder: Path, model: loader.Model, tmp_path: Path) -> None:
    content = json.loads(run("embed", folder, "--text", "he sat", "--json")[0])
    assert content["schema"] == "maxtool.embeddings/1"
    assert (content["count"], content["dimensions"], content["truncated"]) == (1, 20, 0)
    np.testing.assert_array_equal(np.float32(content["embeddings"]), model.embed("he sat"))
    output = str(tmp_path / "out.npy")
    content = json.loads(run("embed", folder, "--ids", "5,6", "--json", "-o", output)[0])
    assert (content["output"], content["tokens"]) == (output, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give one of --text, --file, --image"),
        (["--text", "x", "--ids", "1"], 2, "give one of --text, --file, --image"),
        (["--ids", "one"], 2, "--ids takes integers"),
        (
            ["--file", "/nowhere"],
            3,
            "the texts cannot be read: No such file or directory\n  at: file /nowhere",
        ),
        (["--text", "x", "-o", "/nowhere/x.npy"], 2, "the folder of the output does not exist"),
    ],
)
def test_usage(folder: Path, arguments: list[str], code: int, said: str) -> None:
    assert said in run("embed", folder, *arguments, code=code)[1]


def test_a_line_that_is_no_text(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"he sat\n\xff\n")
    _, stderr = run("embed", folder, "--file", tmp_path / "lines", code=3)
    assert "no UTF-8 text in line 2" in stderr
    output = tmp_path / "out.npy"
    run("embed", folder, "--file", tmp_path / "lines", "-o", output, code=3)
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_each_command_names_the_other(folder: Path, compiled: Compile, data: Path) -> None:
    assert "maxtool embed" in run("run", folder, "--prompt", "he", code=4)[1]
    decoder = compiled(data / "tiny-llama")
    assert "maxtool run" in run("embed", decoder, "--text", "he", code=4)[1]


def test_the_artifacts_own_program(folder: Path, model: loader.Model, tmp_path: Path) -> None:
    command = [sys.executable, str(folder / "run.py")]
    done = subprocess.run([*command, "--text", "he sat"], capture_output=True, check=True)
    np.testing.assert_array_equal(np.float32(json.loads(done.stdout)), model.embed("he sat")[0])
    piped = subprocess.run(
        [*command, "--file", "-", "-o", str(tmp_path / "x.npy")],
        input=b"he sat\ndown.\n",
        capture_output=True,
        check=True,
    )
    assert b"x.npy float32[2, 20]" in piped.stdout
    arrays = tmp_path / "x.npz"
    np.savez(arrays, input_ids=[[5, 6]], attention_mask=[[1, 1]])
    shown = subprocess.run(
        [*command, "--inputs", str(arrays), "--entry", "embed"], capture_output=True, check=True
    )
    assert shown.stdout == b"embeddings float32[1, 20]\n"


@pytest.mark.long
def test_compile_says_what_to_try(data: Path, tmp_path: Path) -> None:
    stderr = run("compile", data / "tiny-bert", "-o", tmp_path / "out")[1]
    assert '--text "Once upon a time"' in stderr
