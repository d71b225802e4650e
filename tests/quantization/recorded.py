"""Digests of quantized bytes, as ``tests/data/quantizers.json`` has them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).parents[1] / "data" / "quantizers.json"
DIGITS = 16

Digests = dict[str, dict[str, dict[str, str]]]


def digest(packed: NDArray[np.uint8]) -> str:
    """The first digits of SHA-256 of bytes."""
    return hashlib.sha256(packed.tobytes()).hexdigest()[:DIGITS]


def read() -> Digests:
    """The digests by encoding, by importance and by sample."""
    content: Digests = json.loads(FILE.read_text(encoding="utf-8"))
    return content
