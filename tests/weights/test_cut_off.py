"""A download that was interrupted: what is missing is said, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import onnx
import onnx.numpy_helper
import pytest
import safetensors.numpy

from maxtool.errors import MalformedFile
from maxtool.weights import open_checkpoint

ARRAYS = {"a": np.ones(300, np.float32), "b": np.ones(500, np.float32)}


def save_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for name, array in ARRAYS.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def save_onnx(path: Path) -> None:
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    graph = onnx.helper.make_graph([], "g", [], [], weights)
    onnx.save(onnx.helper.make_model(graph), path)


# How a whole file is made, and whether its header says how long it is.
WRITERS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "x.safetensors": (lambda path: safetensors.numpy.save_file(ARRAYS, path), True),
    "x.gguf": (save_gguf, True),
    "x.onnx": (save_onnx, True),
    "x.npy": (lambda path: np.save(path, ARRAYS["b"]), True),
    "x.npz": (lambda path: np.savez(path, **ARRAYS), False),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("missing", [40, 100, 2400])
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_missing_is_said(name: str, missing: int, tmp_path: Path) -> None:
    save, counts = WRITERS[name]
    file = tmp_path / name
    save(file)
    whole = file.read_bytes()
    if name == "x.npy" and missing > 2000:
        missing = 2000
    file.write_bytes(whole[:-missing])
    with pytest.raises(MalformedFile) as caught:
        open_checkpoint(file)
    hint = caught.value.hint or ""
    assert "download or copy it again" in hint
    # GGUF may end with bytes that only align it.
    said = re.match(r"(\d+) bytes of it are missing", hint)
    assert (said is not None) == counts
    if said is not None:
        assert abs(int(said[1]) - missing) < (32 if name in ("x.gguf", "x.onnx") else 1)


def test_a_header_that_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    safetensors.numpy.save_file(ARRAYS, file)
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(
        MalformedFile, match=r"the header needs \d+ bytes and 42 are left"
    ) as caught:
        open_checkpoint(file)
    assert "bytes of it are missing: download" in (caught.value.hint or "")
