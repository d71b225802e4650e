"""A Hugging Face folder with PyTorch's weights is converted as one with safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.weights import open_checkpoint
from tests.weights import pickles

DATA = Path(__file__).resolve().parents[1] / "data"


def as_pytorch(source: Path, folder: Path) -> Path:
    """The same checkpoint with its tensors, a tied head included, in pytorch_model.bin."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.npz"))
    checkpoint = open_checkpoint(source)
    names = {name: name for name in checkpoint.tensors}
    if checkpoint.config is not None and checkpoint.config["tie_word_embeddings"]:
        names["lm_head.weight"] = "model.embed_tokens.weight"
    described = {}
    for name, held in names.items():
        info = checkpoint.tensors[held]
        kind = {"float32": "FloatStorage", "bfloat16": "BFloat16Storage"}[info.dtype.value]
        storage = pickles.storage(held, info.size, f"ctorch\n{kind}\n".encode())
        strides = [1] * len(info.shape)
        for index in range(len(info.shape) - 1, 0, -1):
            strides[index - 1] = strides[index] * info.shape[index]
        size, stride = pickles.numbers(*info.shape), pickles.numbers(*strides)
        described[name] = pickles.tensor(storage, size=size, stride=stride)
    storages = {name: checkpoint.read(name).data.tobytes() for name in checkpoint.tensors}
    content = pickles.archive(pickles.pickle(pickles.dictionary(described)), storages)
    (folder / "pytorch_model.bin").write_bytes(content)
    return folder


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-tied", "tiny-mistral"])
def test_the_converted_files_are_the_same(tmp_path: Path, name: str) -> None:
    folder = as_pytorch(DATA / name, tmp_path / name)
    for source, output in ((DATA / name, "theirs"), (folder, "ours")):
        convert(prepare(Request(source, tmp_path / f"{output}.gguf")))
        convert(prepare(Request(source, tmp_path / f"{output}.safetensors")))
    for suffix in ("gguf", "safetensors"):
        expected = (tmp_path / f"theirs.{suffix}").read_bytes()
        assert (tmp_path / f"ours.{suffix}").read_bytes() == expected
