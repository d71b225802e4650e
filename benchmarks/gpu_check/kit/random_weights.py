"""Weights for an artifact that was carried without them: random, of the types in its manifest.

A block of normal numbers is drawn once and written again and again, each time from another place:
drawing sixteen billion numbers would take minutes. Values have a standard deviation of 0.02.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

BLOCK = 1 << 24  # numbers
SPREAD = 0.02
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}


def generate(folder: Path) -> int:
    """Write the weights file that the manifest describes; its bytes."""
    weights = json.loads((folder / "manifest.json").read_text())["weights"]
    drawn = np.random.default_rng(0).standard_normal(BLOCK, np.float32) * np.float32(SPREAD)
    blocks = {name: stored(drawn, name) for name in SIZES}
    end = 0
    with (folder / weights["file"]).open("wb") as file:
        for index, spec in enumerate(weights["tensors"]):
            file.seek(spec["offset"])
            count = math.prod(spec["shape"])
            fill(file, blocks[kind(spec)], count * SIZES[kind(spec)], index)
            end = file.tell()
    return end


def kind(spec: dict[str, object]) -> str:
    """The element type of a weight; its bits as uint16 are those of bfloat16."""
    name = str(spec["dtype"])
    return "bfloat16" if name == "uint16" else name


def stored(values: np.ndarray, name: str) -> bytes:
    """The block in an element type; bfloat16 by cutting, which random numbers do not mind."""
    if name == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype(name).tobytes()


def fill(file, block: bytes, nbytes: int, index: int) -> None:  # noqa: ANN001 - an open file
    start = (index * 4096) % len(block)
    while nbytes:
        piece = block[start : start + nbytes]
        file.write(piece)
        nbytes -= len(piece)
        start = 0


if __name__ == "__main__":
    print(generate(Path(sys.argv[1])))
