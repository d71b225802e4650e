"""Random models to be quantized, their importance matrices, and digests of quantized files."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter
from safetensors.numpy import load_file, save_file

from maxtool.quantization.mixes import MIXES
from tests.artifact.random_checkpoint import random_checkpoint

FILE = Path(__file__).resolve().parents[1] / "data" / "quantized_files.json"
DIGITS = 16
NARROW = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 32, "vocab_size": 40}
GROUPED = {"num_attention_heads": 8, "num_key_value_heads": 2}

# A tiny checkpoint's name, and other sizes: outliers, grouped heads, a tied head, rows of 32 and
# of 16, eight experts and two, layers of which many are finer.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("tiny-llama", {**NARROW, "num_hidden_layers": 2}),
    "grouped": ("tiny-llama", {**NARROW, **GROUPED, "num_hidden_layers": 9}),
    "tied": ("tiny-llama-tied", {**NARROW, "num_hidden_layers": 1}),
    "uneven": ("tiny-llama", {**NARROW, "hidden_size": 96, "intermediate_size": 272}),
    "experts": ("tiny-mixtral", {**NARROW, "num_local_experts": 8, "num_hidden_layers": 1}),
    "pairs": ("tiny-mixtral", {**NARROW, "num_local_experts": 2, "num_hidden_layers": 3}),
    "falcon": ("tiny-falcon-new", {**NARROW, "num_hidden_layers": 2}),
}
MODELS["falcon"][1].pop("intermediate_size")
MODELS["falcon"][1].pop("head_dim")
# Each mix of one model, and of the others some in which they differ.
SOME = ("Q4_0", "Q2_K", "Q3_K_M", "Q4_K_M", "IQ4_XS")
CASES = [("llama", mix, False) for mix in MIXES if mix != "Q2_K_S"]
CASES += [("llama", mix, True) for mix in MIXES]
CASES += [
    (model, mix, weighed)
    for model in MODELS
    for mix in SOME
    for weighed in (False, True)
    if model != "llama"
]


def model(folder: Path, name: str) -> Path:
    """A Hugging Face folder with random weights, some of them thousands of times the others."""
    like, sizes = MODELS[name]
    random_checkpoint(folder, like, **sizes)
    file = folder / "model.safetensors"
    save_file({key: _spiked(key, array) for key, array in load_file(file).items()}, file)
    return folder


def _spiked(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with a few outliers, where its name says."""
    if array.ndim < 2:
        return array
    flat = array.reshape(-1).copy()
    step = 97 + zlib.crc32(name.encode()) % 1000
    flat[step::step] *= np.float32(3000)
    flat[step // 2 :: 7 * step] = 0
    return flat.reshape(array.shape)


def importance(file: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Importance for the matrices of a GGUF file, ``[matrices, row]``; of some columns none."""
    result = {}
    for tensor in GGUFReader(file).tensors:
        row, *others = (int(size) for size in tensor.shape)
        if not others or "norm" in tensor.name or tensor.name.startswith(("token", "position")):
            continue
        bits = np.random.PCG64(zlib.crc32(tensor.name.encode()))
        count = row * (others[1] if len(others) > 1 else 1)
        raw = (bits.random_raw(count) >> np.uint64(44)).astype(np.float32) / np.float32(1 << 16)
        raw[::9] = 0
        result[tensor.name] = raw.reshape(-1, row)
    return result


def write_older(file: Path, entries: Mapping[str, np.ndarray[Any, Any]], calls: int = 4) -> None:
    """Write llama.cpp's older form."""
    parts = [np.int32(len(entries)).tobytes()]
    for name, values in entries.items():
        parts += [np.int32(len(name)).tobytes(), name.encode()]
        parts.append(np.array([calls, values.size], "<i4").tobytes())
        parts.append((values * np.float32(calls)).astype("<f4").tobytes())
    parts += [np.int32(12).tobytes(), np.int32(8).tobytes(), b"text.txt"]
    file.write_bytes(b"".join(parts))


def write_gguf(file: Path, entries: Mapping[str, np.ndarray[Any, Any]], count: int = 4) -> None:
    """Write the newer form."""
    writer = GGUFWriter(file, "imatrix")
    writer.add_array("imatrix.datasets", ["text.txt"])
    writer.add_uint32("imatrix.chunk_count", 12)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, values in entries.items():
        writer.add_tensor(f"{name}.in_sum2", values * np.float32(count))
        writer.add_tensor(f"{name}.counts", np.full((len(values), 1), count, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def digest(file: Path) -> str:
    """The first digits of SHA-256 of all tensors of a GGUF file, by name, with their types."""
    total = hashlib.sha256()
    for tensor in sorted(GGUFReader(file).tensors, key=lambda each: each.name):
        total.update(f"{tensor.name} {tensor.tensor_type.name}".encode())
        total.update(tensor.data.tobytes())
    return total.hexdigest()[:DIGITS]


def recorded() -> dict[str, str]:
    """The digests, by :func:`key`."""
    content: dict[str, str] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def key(parts: Iterable[object]) -> str:
    """The name of a case in the recording."""
    return " ".join(map(str, parts))
