"""The file ``generation_config.json``, which says how a model's texts are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from maxtool.weights.jsonfile import read_object

FILE = "generation_config.json"
MOST = 1 << 20  # bytes


def read(file: Path) -> Mapping[str, Any]:
    """Return all keys of the file.

    Raises:
        CheckpointError: If it is malformed, or larger than such files are.
    """
    return read_object(file, most=MOST)


def not_done(said: Mapping[str, Any], file: Path, keys: Iterable[str]) -> Iterator[str]:
    """Yield a line for each of the ``keys`` by which the file asks for what is not offered."""
    for key in keys:
        if said.get(key) not in (None, False, 1, 1.0, 0):
            yield f"{key} = {said[key]!r:.40} of {file.name} is not done"
