"""Folders that ``--force`` replaces: those of a checkpoint, and none that holds anything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.conversion import Request, convert, prepare
from maxtool.conversion.replaceable import BESIDE, TENSORS
from maxtool.errors import UsageError

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = DATA / "tiny-llama"


def replace(output: Path, source: Path = TINY) -> None:
    convert(prepare(Request(source, output, force=True)))


def checkpoint(output: Path) -> Path:
    shutil.copytree(TINY, output, ignore=shutil.ignore_patterns("expected.npz"))
    return output


def refused(output: Path) -> tuple[str, ...]:
    """The entries that are named; everything is still there."""
    before = sorted(output.rglob("*"))
    with pytest.raises(UsageError, match="not replaced") as caught:
        replace(output)
    assert sorted(output.rglob("*")) == before
    return caught.value.problems


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-bert", "tiny-gemma3", "tiny-gpt2"])
def test_what_was_written_is_replaced(tmp_path: Path, name: str) -> None:
    """tiny-bert has the files and the folder of sentence-transformers."""
    for _ in range(2):
        replace(tmp_path / "out", DATA / name)


def test_a_folder_as_transformers_saves_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in (
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "special_tokens_map.json",
        "preprocessor_config.json",
    ):
        (out / name).write_text("old")
    replace(out)
    assert (out / "config.json").read_text() != "old"
    assert not (out / "preprocessor_config.json").exists()


def test_an_empty_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    replace(tmp_path / "out")


@pytest.mark.parametrize(
    "stranger",
    ["thesis.safetensors", "stale", "README.md", "a/b", ".git/config", "notes/config.json"],
)
def test_one_stranger_is_enough(tmp_path: Path, stranger: str) -> None:
    out = checkpoint(tmp_path / "out")
    (out / stranger).parent.mkdir(exist_ok=True)
    (out / stranger).write_text("{}")
    assert refused(out) == (stranger.split("/")[0],)


@pytest.mark.parametrize("names", [("thesis.safetensors",), ("config.json", "letter.txt")])
def test_a_folder_without_a_checkpoint(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    assert refused(tmp_path) == names


@pytest.mark.parametrize(
    ("inside", "content", "known"),
    [
        ("config.json", {"pooling_mode_cls_token": True}, True),
        ("config.json", {}, False),
        ("config.json", [1], False),
        ("model.safetensors", {"a": 1}, False),
        ("deeper/config.json", {"a": 1}, False),
    ],
)
def test_the_folder_of_a_module(tmp_path: Path, inside: str, content: object, known: bool) -> None:
    out = checkpoint(tmp_path / "out")
    modules = [{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    (out / "modules.json").write_text(json.dumps(modules))
    file = out / "1_Pooling" / inside
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(content))
    if known:
        replace(out)
        assert not file.exists()
    else:
        assert refused(out) == ("1_Pooling",)


def test_a_link_in_the_place_of_a_module_is_a_stranger(tmp_path: Path) -> None:
    out = checkpoint(tmp_path / "out")
    (out / "modules.json").write_text(json.dumps([{"path": "1_Pooling", "type": "a.Pooling"}]))
    (out / "1_Pooling").symlink_to(tmp_path)
    assert refused(out) == ("1_Pooling",)


def test_a_file_never_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    checkpoint(tmp_path / "out")
    with pytest.raises(UsageError, match="folder"):
        prepare(Request(TINY, tmp_path / "out", to="gguf", force=True))


@given(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=40))
def test_names_are_known_whole(name: str) -> None:
    """Match whole names, never their beginnings or ends."""
    for known in ("model.safetensors", "config.json"):
        for other in (name + known, known + name):
            assert other not in BESIDE
            assert TENSORS.fullmatch(other) is None
