"""``maxtool compare``: artifacts whose logits are a table, and what cannot be compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.runtime import tiny_artifact as tiny

TEXT = "Once upon a time there was a little girl named Lily. She loved to play outside.\n"
CONTEXT = 16
# By the artifact: the tokens that its logits are highest for, at each position.
LIKELIEST = {"a": [7] * 40, "b": [7] * 20 + [9] * 20, "c": list(range(40))}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with artifacts that differ in their weights, and texts."""
    root = tmp_path_factory.mktemp("compare")
    module = tiny.compile_module(root)
    for name, tokens in LIKELIEST.items():
        tiny.make(root / name, module, tokens, 1)
    (root / "text.txt").write_text(TEXT * 5, encoding="utf-8")
    np.save(root / "ids.npy", np.array(tiny.encode(TEXT * 5), np.int32))
    return root


def run(root: Path, *arguments: object, **env: str) -> Result:
    words = [str(root / w) if (root / str(w)).exists() else str(w) for w in arguments]
    return CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "80", **env})


def logits(name: str) -> np.ndarray[Any, Any]:
    """The table behind the logits of any window: the artifact adds the token, in float32."""
    return tiny.plan(LIKELIEST[name], 1)[:CONTEXT].astype(np.longdouble)


def expected(name: str, reference: str, ids: list[int]) -> tuple[float, float, float]:
    """Perplexity, mean divergence and the share of equal first choices."""
    p, q = (np.exp(logits(one)) for one in (reference, name))
    p, q = (one / one.sum(axis=1, keepdims=True) for one in (p, q))
    rows = range(CONTEXT // 2, CONTEXT - 1)
    starts = range(0, len(ids) - CONTEXT + 1, CONTEXT)
    surprisals = [-np.log(q[row, ids[start + row + 1]]) for start in starts for row in rows]
    divergences = [(p[row] * np.log(p[row] / q[row])).sum() for row in rows]
    same = [p[row].argmax() == q[row].argmax() for row in rows]
    perplexity = math.exp(float(np.mean(surprisals)))
    return perplexity, float(np.mean(divergences)), float(np.mean(same))


def test_figures_are_those_of_the_logits(root: Path) -> None:
    source = ("--text", "text.txt", "--context", CONTEXT, "--json")
    result = run(root, "a", "b", "c", *source)
    assert (result.exit_code, result.stderr) == (0, "")
    content = json.loads(result.stdout)
    ids = tiny.encode(TEXT * 5)
    assert content["schema"] == "maxtool.compare/1"
    assert content["context"] == CONTEXT
    assert content["windows"] == len(ids) // CONTEXT
    assert content["scored_tokens"] == len(ids) // CONTEXT * 7
    for name, row in zip("abc", content["artifacts"], strict=True):
        perplexity, divergence, same = expected(name, "a", ids)
        assert row["folder"] == str(root / name)
        assert row["perplexity"]["value"] == pytest.approx(perplexity, rel=1e-5)
        assert row["kl_divergence"]["value"] == pytest.approx(divergence, rel=1e-5)
        assert row["same_top"]["value"] == pytest.approx(same)
        files = [file for file in (root / name).rglob("*") if file.is_file()]
        assert row["bytes"] == sum(file.stat().st_size for file in files)
        assert row["weight_bytes"] == (root / name / "weights.bin").stat().st_size


def test_token_ids_are_as_good_as_text(root: Path) -> None:
    options = ("--context", CONTEXT, "--json")
    text = json.loads(run(root, "a", "b", "--text", "text.txt", *options).stdout)
    ids = json.loads(run(root, "a", "b", "--tokens", "ids.npy", *options).stdout)
    assert text["artifacts"] == ids["artifacts"]
    assert (text["tokens"], ids["text"]) == (None, None)


def test_the_table(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    arguments = ["compare", "a", "b", "--text", "text.txt", "--context", "16", "--windows", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    header, reference, candidate = result.stdout.splitlines()
    columns = ["artifact", "size", "perplexity", "change", "KL mean", "KL 99%", "same top"]
    assert re.split(r"  +", header.strip()) == columns
    assert len(reference.split()) == 6  # no distance from itself
    assert candidate.split()[-1] == "100.00%"
    assert result.stderr == "14 tokens scored, in 2 windows of 16\n"


def test_the_window_is_the_context_where_that_is_smaller(root: Path) -> None:
    content = json.loads(run(root, "a", "b", "--text", "text.txt", "--json").stdout)
    assert content["context"] == tiny.CONTEXT


def changed(**fields: object) -> Callable[[Path], None]:
    """A change of the manifest."""

    def change(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["manifest_sha256"]
        tiny.write(folder, {**manifest, **fields})

    return change


def of_arrays(folder: Path) -> None:
    entries = json.loads((folder / "manifest.json").read_text())["entries"]
    changed(task=None, state=[], entries={"forward": entries["forward"]})(folder)


def without_tokenizer(folder: Path) -> None:
    changed(tokenizer=None)(folder)


def with_other_pieces(folder: Path) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.get)[-2:]
    first, last = (vocabulary[word] for word in words)
    vocabulary |= {words[0]: last, words[1]: first}
    path.write_text(json.dumps(content))


def with_more_weights(folder: Path) -> None:
    path = folder / "weights.bin"
    path.write_bytes(path.read_bytes() + b"x")


def for_another_machine(folder: Path) -> None:
    changed(target={"kind": "cpu", "triple": "sparc64-linux-gnu", "features": []})(folder)


REFUSED: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "another task": (of_arrays, 4, "this model takes arrays, and no text"),
    "no tokenizer": (without_tokenizer, 4, "this artifact has no tokenizer"),
    "other tokens": (with_other_pieces, 4, "the models do not have the same tokens"),
    "another machine": (for_another_machine, 6, "compiled for sparc64"),
    "a changed file": (with_more_weights, 1, "weights.bin is not the file that was compiled"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), 3, "no compiled model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared(name: str, root: Path, tmp_path: Path) -> None:
    change, code, says = REFUSED[name]
    folder = tmp_path / "candidate"
    tiny.make(folder, root / "model.so", LIKELIEST["b"], 1)
    change(folder)
    verify = ["--no-verify"] if name == "other tokens" else []
    result = run(root, "a", folder, "--text", "text.txt", "--context", CONTEXT, *verify)
    assert result.exit_code == code, result.stderr
    assert says in " ".join(result.stderr.split())
    assert "candidate" in "".join(result.stderr.split())
    assert not result.stdout


def test_models_without_tokenizers_read_token_ids(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "candidate"
    tiny.make(folder, root / "model.so", LIKELIEST["b"], 1)
    without_tokenizer(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["tokenizer"] is None
    result = run(root, folder, folder, "--tokens", "ids.npy", "--context", CONTEXT)
    assert result.exit_code == 0, result.stderr


BAD_TEXTS: dict[str, tuple[str, bytes, int, str]] = {
    "short": ("--text", b"Once", 3, "the text has 3 tokens, and a window has 16"),
    "not UTF-8": ("--text", TEXT.encode() + b"\xff", 3, "the text is not UTF-8"),
    "no file": ("--text", b"", 3, "the text cannot be read"),
    "no array": ("--tokens", TEXT.encode(), 3, ""),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_texts_that_cannot_be_read(name: str, root: Path, tmp_path: Path) -> None:
    option, content, code, says = BAD_TEXTS[name]
    file = tmp_path / "text"
    if content:
        file.write_bytes(content)
    result = run(root, "a", "b", option, file, "--context", CONTEXT)
    assert result.exit_code == code, result.stderr
    assert says in " ".join(result.stderr.split())


BAD_IDS: dict[str, tuple[np.ndarray[Any, Any], int, str]] = {
    "floats": (np.ones(99, np.float32), 3, "token ids are integers[tokens], and this is float32"),
    "rows": (np.ones((9, 9), np.int64), 3, "and this is int64[9, 9]"),
    "beyond": (np.full(99, tiny.VOCAB), 4, "input_ids"),
    "negative": (np.full(99, -1), 4, "input_ids"),
}


@pytest.mark.parametrize("name", BAD_IDS)
def test_arrays_that_are_not_token_ids(name: str, root: Path, tmp_path: Path) -> None:
    array, code, says = BAD_IDS[name]
    np.save(tmp_path / "ids.npy", array)
    result = run(root, "a", "b", "--tokens", tmp_path / "ids.npy", "--context", CONTEXT)
    assert result.exit_code == code, result.stderr
    assert says in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ((), 2, "give a text with --text, or token ids with --tokens"),
        (("--text", "text.txt", "--tokens", "ids.npy"), 2, "give a text with --text"),
        (("--text", "text.txt", "--context", "49"), 4, "the context of the model holds 48 tokens"),
        (("--text", "text.txt", "--context", "7"), 2, "the shortest has 8"),
        (("--text", "text.txt", "--windows", "0"), 2, "0 windows"),
        (("--text", "text.txt", "--device", "abacus"), 2, "abacus"),
    ],
)
def test_options_that_cannot_be_followed(
    options: tuple[str, ...], code: int, says: str, root: Path
) -> None:
    result = run(root, "a", "b", *options)
    assert result.exit_code == code, result.stderr
    assert says in " ".join(result.stderr.split())


def test_logits_that_are_not_numbers(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "candidate"
    tiny.make(folder, root / "model.so", [], 1)
    weights = bytearray((folder / "weights.bin").read_bytes())
    weights[:4] = np.float32(np.nan).tobytes()
    (folder / "weights.bin").write_bytes(weights)
    source = ("--text", "text.txt", "--context", CONTEXT)
    result = run(root, "a", folder, *source, "--no-verify", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["what"], error["file"]) == (
        "the model's logits are not finite numbers",
        str(folder),
    )
