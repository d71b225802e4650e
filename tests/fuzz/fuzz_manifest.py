"""The manifest of a compiled model, as its loader reads it."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

from harness import Target, folder, put, run

from maxtool.runtime.loader import Manifest, NotVerified, checksum
from maxtool.runtime.loader.manifest import CHECKSUM
from maxtool.runtime.loader.manifest_parser import SCHEMA
from maxtool.runtime.loader.specs import ALIGNMENT

FILES = {"model.so": b"code", "weights.bin": bytes(128), "tokenizer.json": b"{}"}


def spec(name: str, dtype: str, *shape: int | str, **more: int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape), **more}


def manifest() -> dict[str, Any]:
    inputs = [spec("input_ids", "int64", "batch", "seq"), spec("position", "int32", 1)]
    outputs = [spec("logits", "float32", "batch", 9)]
    entry = {"function": "decode", "inputs": inputs, "outputs": outputs, "state": True}
    files = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in FILES.items()
    }
    weights = [
        spec("a", "float32", 9, 1, offset=0, nbytes=36),
        spec("b", "bfloat16", 3, offset=ALIGNMENT, nbytes=6),
    ]
    return {
        "schema": SCHEMA,
        "task": "generate",
        "module": "model.so",
        "context": 16,
        "entries": {"decode": entry},
        "state": [spec("cache", "float16", "batch", 16, positions=1)],
        "weights": {"file": "weights.bin", "alignment": ALIGNMENT, "tensors": weights},
        "target": {"kind": "cpu", "triple": "x86_64-linux-gnu", "features": ["avx2"]},
        "limits": {"seq": 16, "input_ids": [0, 8]},
        "tables": [{"weight": "a", "index": "input_ids", "skipped": 0}],
        "files": files,
        "tokenizer": {
            "file": "tokenizer.json",
            "bos_token_id": 1,
            "eos_token_ids": [2],
            "add_bos": True,
        },
    }


def seeds() -> list[bytes]:
    result = manifest()
    return [json.dumps({**result, CHECKSUM: checksum(result)}).encode()]


def read(data: bytes) -> None:
    for name, content in FILES.items():
        if not (folder() / name).exists():
            (folder() / name).write_bytes(content)
    result = Manifest(put(("manifest.json",), data).parent)
    with suppress(NotVerified):  # nearly every change is noticed by its checksum
        result.verify()


TARGET = Target(seeds, read, [b"../outside", b"link", b'"\\ud800"', b"null", b"1e999", b"-1"])

if __name__ == "__main__":
    run(TARGET)
