"""The writer of each format, by what ``--to`` calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.conversion.request import Target
from maxtool.weights.formats import gguf, npz_writing, safetensors

# The modules of the formats have the same functions: check, header and write.
WRITERS: Mapping[Target, Any] = {
    "gguf": gguf,
    "hf": safetensors,
    "safetensors": safetensors,
    "npz": npz_writing,
}
