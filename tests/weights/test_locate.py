"""Folders, shards and split files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import gguf
import numpy as np
import pytest
import safetensors.numpy

from maxtool.errors import MalformedFile, MissingFile
from maxtool.weights import Checkpoint, open_checkpoint

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def save(path: Path, *names: str, value: float = 1) -> None:
    safetensors.numpy.save_file({name: np.full(2, value, np.float32) for name in names}, path)


def sharded(folder: Path, weight_map: dict[str, object] | None = None) -> Path:
    """Two shards with a, b and c; the index as given or right."""
    save(folder / FIRST, "a", "b")
    save(folder / SECOND, "c", value=2)
    right = {"a": FIRST, "b": FIRST, "c": SECOND}
    content = {"metadata": {"total_size": 24}, "weight_map": weight_map or right}
    (folder / INDEX).write_text(json.dumps(content))
    return folder / INDEX


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", "a")
    (tmp_path / "config.json").write_text('{"model_type": "llama", "limit": Infinity}')
    for path in (tmp_path, tmp_path / "model.safetensors"):
        checkpoint = open_checkpoint(path)
        assert list(checkpoint.tensors) == ["a"]
        assert checkpoint.config == {"model_type": "llama", "limit": float("inf")}
        assert checkpoint.config_file == tmp_path / "config.json"
        assert (checkpoint.folder, checkpoint.path) == (tmp_path, path)


def test_another_configuration_can_be_named(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", "a")
    (tmp_path / "config.older.json").write_text('{"old": true}')
    assert open_checkpoint(tmp_path).config is None
    checkpoint = open_checkpoint(tmp_path, config=tmp_path / "config.older.json")
    assert checkpoint.config == {"old": True}


def test_shards_by_folder_and_by_index(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    for path in (tmp_path, index):
        checkpoint = open_checkpoint(path)
        assert list(checkpoint.tensors) == ["a", "b", "c"]
        assert [file.name for file in checkpoint.files] == [FIRST, SECOND]
        assert checkpoint.read("c").data.tolist() == [2, 2]
        assert checkpoint.notes == ()


def test_the_index_decides(tmp_path: Path) -> None:
    sharded(tmp_path, {"a": FIRST, "c": SECOND})
    save(tmp_path / SECOND, "c", "a", value=2)
    save(tmp_path / "stray.safetensors", "z")
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["a", "c"]
    assert checkpoint.read("a").data.tolist() == [1, 1]
    assert checkpoint.notes == (
        "tensors in the shards that the index does not name were left out: b",
        "tensors are in a second shard too; the index decides: a",
        "files beside the shards that the index does not name were left out: stray.safetensors",
    )


def test_all_missing_shards_are_listed(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    (tmp_path / FIRST).unlink()
    (tmp_path / SECOND).unlink()
    with pytest.raises(MissingFile, match="shards that the index names are missing") as caught:
        open_checkpoint(index)
    assert caught.value.problems == (FIRST, SECOND)


def test_all_missing_tensors_are_listed(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(12)]
    sharded(tmp_path, {"a": FIRST, **dict.fromkeys(names, SECOND)})
    with pytest.raises(MalformedFile, match="not in their shards") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.problems[0] == f"t0 in {SECOND}"
    assert caught.value.problems[-1] == "and 2 more"


LEAVING = [
    "../x.safetensors",
    "/etc/passwd",
    "a/../../x",
    "..",
    "",
    "C:\\x",
    "\\x",
    "a\\..\\x",
    "\0",
    7,
]


@pytest.mark.parametrize("name", LEAVING)
def test_shards_stay_in_their_folder(tmp_path: Path, name: object) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save(tmp_path / "x.safetensors", "a")
    sharded(folder, {"a": name})
    with pytest.raises(MalformedFile, match="names shards outside its folder"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["x" * 300, "\ud800"])
def test_shards_with_names_that_the_system_refuses(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingFile):
        open_checkpoint(sharded(tmp_path, {"a": name}))


def test_shards_may_be_links_as_in_the_hub_cache(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "rev", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    sharded(snapshot)
    for name in (FIRST, SECOND, INDEX):
        (snapshot / name).rename(blobs / name)
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    checkpoint = open_checkpoint(snapshot)
    assert len(checkpoint.tensors) == 3
    assert checkpoint.folder == snapshot


BAD_JSON = {
    "[]": "the JSON is not an object",
    "{": "not valid JSON",
    "{}": "no weight_map",
    '{"weight_map": {}}': "no weight_map",
    '{"weight_map": []}': "no weight_map",
    '{"weight_map": {"a": "x", "a": "y"}}': "the JSON key 'a' is there twice",
}


@pytest.mark.parametrize("content", BAD_JSON)
def test_bad_indexes(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(MalformedFile, match=BAD_JSON[content]):
        open_checkpoint(tmp_path)


def test_a_broken_configuration_names_the_byte(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", "a")
    (tmp_path / "config.json").write_text('{"ä": 1,\n nope}')
    with pytest.raises(MalformedFile, match="not valid JSON") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.offset == len('{"ä": 1,\n '.encode())


def test_folders_without_one_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="no checkpoint in this folder") as caught:
        open_checkpoint(tmp_path)
    assert "a Hugging Face folder" in str(caught.value)
    save(tmp_path / "one.safetensors", "a")
    assert list(open_checkpoint(tmp_path).tensors) == ["a"]
    save(tmp_path / "two.safetensors", "a")
    with pytest.raises(MissingFile, match="several files match") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.problems == ("one.safetensors", "two.safetensors")


def test_folders_of_other_formats(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.ones(2))
    assert open_checkpoint(tmp_path).format == "npy"
    np.savez(tmp_path / "a.npz", a=np.ones(2))
    assert open_checkpoint(tmp_path).format == "npz"
    save(tmp_path / "model.safetensors", "a")
    assert open_checkpoint(tmp_path).format == "safetensors"


OTHERS = {
    b"\x80\x02" + bytes(20): "pickles are never read",
    b"\x80\x04": "a pickle without the zip archive",
    b"version https://git-lfs.github.com/spec/v1": "was not downloaded",
    b"hello, world, how are you": "not recognised",
}


@pytest.mark.parametrize("content", OTHERS)
def test_other_formats_are_refused_with_what_is_accepted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(MalformedFile, match=OTHERS[content]) as caught:
        open_checkpoint(tmp_path / "model.bin")
    assert "accepted: a Hugging Face folder" in str(caught.value)


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    save(tmp_path / "weights", "a")
    assert open_checkpoint(tmp_path / "weights").format == "safetensors"


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.gguf")
    with pytest.raises(MissingFile, match="not a regular file"):
        open_checkpoint(tmp_path / "x.gguf")


# Split GGUF files, written by the gguf package.


def split(folder: Path) -> list[Path]:
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=2)
    for number in range(5):
        writer.add_tensor(f"t{number}", np.full(3, number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("*.gguf"))


def contents(checkpoint: Checkpoint) -> dict[str, list[float]]:
    return {name: checkpoint.read(name).data.tolist() for name in checkpoint.tensors}


def test_split_files_by_any_part_and_by_folder(tmp_path: Path) -> None:
    parts = split(tmp_path)
    assert len(parts) == 3
    for path in (*parts, tmp_path):
        checkpoint = open_checkpoint(path)
        assert contents(checkpoint) == {f"t{number}": [number] * 3 for number in range(5)}
        assert checkpoint.metadata["general.architecture"] == "llama"
        assert list(checkpoint.files) == parts


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = split(tmp_path)
    parts[1].unlink()
    with pytest.raises(MissingFile, match="parts of a split file are missing") as caught:
        open_checkpoint(parts[0])
    assert caught.value.problems == (parts[1].name,)


def test_a_part_must_be_named_as_one(tmp_path: Path) -> None:
    part = split(tmp_path)[0].rename(tmp_path / "other.gguf")
    with pytest.raises(MalformedFile, match="one of 3 parts, but not named so"):
        open_checkpoint(part)


def test_a_part_given_twice_is_refused(tmp_path: Path) -> None:
    parts = split(tmp_path)
    parts[1].write_bytes(parts[0].read_bytes())
    with pytest.raises(MalformedFile, match="the tensor is in two parts"):
        open_checkpoint(parts[2])


def test_too_many_shards(tmp_path: Path) -> None:
    index = sharded(tmp_path, {f"w{n}": f"{n}.safetensors" for n in range(4097)})
    with pytest.raises(MalformedFile, match="4097 files; at most 4096 are read") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.file == str(index)
