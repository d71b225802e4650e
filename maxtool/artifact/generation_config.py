"""The file ``generation_config.json``, which says how a model's texts are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from maxtool.recipe import Plan
from maxtool.weights.jsonfile import read_object

FILE = "generation_config.json"
MOST = 1 << 20  # bytes
USUAL: Sequence[Any] = (None, False, 1, [])


def read(file: Path) -> Mapping[str, Any]:
    """Return all keys of the file.

    Raises:
        CheckpointError: If it is malformed, or larger than such files are.
    """
    return read_object(file, most=MOST)


def said_of(planned: Plan) -> tuple[Mapping[str, Any], Path]:
    """The keys that say how a model's texts are written, and their file.

    They are in ``config.json`` where there is no such file; GGUF has none of them.
    """
    checkpoint = planned.checkpoint
    file = checkpoint.folder / FILE
    if checkpoint.config is None:
        return {}, checkpoint.path
    if file.is_file():
        return read(file), file
    return checkpoint.config, checkpoint.config_file or checkpoint.path


def not_done(
    said: Mapping[str, Any], file: Path, keys: Iterable[str], usual: Sequence[Any] = USUAL
) -> Iterator[str]:
    """Yield a line for each of the ``keys`` by which the file asks for what is not offered.

    The ``usual`` values ask for nothing.
    """
    for key in keys:
        if said.get(key) not in usual:
            yield f"{key} = {said[key]!r:.40} of {file.name} is not done"
