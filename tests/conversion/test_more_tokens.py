"""Checkpoints whose tokenizers have more tokens than the model has rows, in every direction."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.conversion import Request, convert, prepare

DATA = Path(__file__).parents[1] / "data"
ROWS = 97
BEYOND = {
    str(ROWS): {"content": "<image_soft_token>", "special": True},
    str(ROWS + 1): {"content": "extra", "special": False},
}


def extended(source: Path, path: Path, beyond: dict[str, object]) -> Path:
    """A checkpoint to whose tokenizer tokens were added, as fine-tunes do."""
    names = [file for file in source.iterdir() if file.suffix != ".gguf"]
    path.mkdir()
    for file in names:
        shutil.copyfile(file, path / file.name)
    config = json.loads((path / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = beyond
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return extended(DATA / "tiny-llama", tmp_path / "more", BEYOND)


def run(source: Path, output: Path) -> tuple[Path, list[str]]:
    result = prepare(Request(source, output, name="x"))
    convert(result)
    return output, result.notes


def test_to_gguf_without_them(source: Path, tmp_path: Path) -> None:
    actual, notes = run(source, tmp_path / "found.gguf")
    expected, none = run(DATA / "tiny-llama", tmp_path / "expected.gguf")
    assert actual.read_bytes() == expected.read_bytes()
    assert [note for note in notes if note not in none] == [
        "the tokenizer has 99 tokens and the model 97 rows for them: "
        "'<image_soft_token>', 'extra' left out"
    ]


@pytest.mark.reference
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_as_llama_cpp_leaves_them_out(reference: Path, tmp_path: Path, name: str) -> None:
    """Write the files that llama.cpp makes of the plain folders."""
    config = json.loads((reference / name / "config.json").read_text())
    beyond = {str(config["vocab_size"]): {"content": "<image_soft_token>", "special": True}}
    result = prepare(
        Request(
            extended(reference / name, tmp_path / name, beyond),
            tmp_path / "out.gguf",
            name=name.capitalize(),
        )
    )
    convert(result)
    expected = reference / name / f"{name}-f32.gguf"
    assert (tmp_path / "out.gguf").read_bytes() == expected.read_bytes()


def test_a_folder_keeps_its_files(source: Path, tmp_path: Path) -> None:
    """Keep the files that transformers reads: a copy loses nothing."""
    result, _ = run(source, tmp_path / "copy")
    for name in ("tokenizer.model", "tokenizer_config.json"):
        assert (result / name).read_bytes() == (source / name).read_bytes()


def with_one_more(source: Path, output: Path) -> Path:
    """A GGUF file that lists a token beyond its rows, by which texts end."""
    result = prepare(Request(source, output))
    (file,) = result.layout.files
    keys = dict(file.metadata)
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], "<more>"]
    for name, value in (("scores", -1.0), ("token_type", 3)):
        column = np.asarray(keys[f"tokenizer.ggml.{name}"])
        keys[f"tokenizer.ggml.{name}"] = np.append(column, np.asarray([value], column.dtype))
    keys["tokenizer.ggml.eos_token_id"] = np.uint32(ROWS)
    result.layout = replace(result.layout, files=(replace(file, metadata=keys),))
    convert(result)
    return output


def test_from_gguf(tmp_path: Path) -> None:
    plain, _ = run(DATA / "tiny-llama", tmp_path / "plain.gguf")
    source = with_one_more(plain, tmp_path / "more.gguf")
    actual, notes = run(source, tmp_path / "found")
    expected, _ = run(plain, tmp_path / "expected")
    assert "eos_token_id" not in json.loads((actual / "config.json").read_text())
    pieces = [
        sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        for folder in (actual, expected)
    ]
    assert pieces[0].get_piece_size() == pieces[1].get_piece_size() == ROWS
    assert any("'<more>' left out" in note for note in notes)
    assert any("no row for it: eos (97)" in note for note in notes)


def test_gguf_to_gguf_keeps_its_keys(tmp_path: Path) -> None:
    plain, _ = run(DATA / "tiny-llama", tmp_path / "plain.gguf")
    source = with_one_more(plain, tmp_path / "more.gguf")
    kept, _ = run(source, tmp_path / "kept.gguf")
    assert kept.read_bytes() == source.read_bytes()


def test_compiled_models_get_no_id_that_they_have_no_row_for(source: Path, tmp_path: Path) -> None:
    result = artifact.prepare(artifact.Request(source, tmp_path / "out"))
    assert any("'<image_soft_token>', 'extra' left out" in note for note in result.notes)
    assert result.contents.tokenizer is not None
    folder = tmp_path / "folder"
    folder.mkdir()
    artifact.tokenizer_files.write(result.contents.tokenizer, folder)
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert library.get_vocab_size() == ROWS
    assert max(library.encode("an extra <image_soft_token>").ids) < ROWS


def test_the_command_says_so(source: Path, tmp_path: Path) -> None:
    arguments = ["convert", str(source), "-o", str(tmp_path / "x.gguf"), "--dry-run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "the tokenizer has 99 tokens and the model 97 rows" in result.stderr
