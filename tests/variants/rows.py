"""What ``tests/data/record_variants.py`` recorded: configurations that differ in one key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.seeded import (
    PADDED,
    Array,
    Config,
    attention_mask,
    changed,
    input_ids,
    tensors,
    unfolded,
)

DATA = Path(__file__).resolve().parents[1] / "data"
FAMILIES = tuple(sorted(file.stem for file in (DATA / "variants").glob("tiny-*.json")))
ALLOWED = 3e-5
"""What float32 arithmetic and six digits add to the recorded outputs, relatively."""

Shapes = dict[str, list[int]]


@dataclass(frozen=True)
class Row:
    """One configuration.

    Attributes:
        family: The tiny checkpoint that it is a variant of.
        base: Which configuration of that checkpoint.
        usual: That configuration.
        config: As a config.json would have it.
        change: What differs from the base.
        shapes: The tensors of its file.
        expected: Some outputs of transformers; None where it refuses.
        alike: Whether those are the base's, all of them.
    """

    family: str
    base: str
    usual: Config
    config: Config
    change: Config
    shapes: Shapes
    expected: Array | None
    alike: bool

    def __str__(self) -> str:
        return f"{self.family}/{self.base} {json.dumps(self.change)}"


@cache
def recorded(family: str) -> dict[str, Any]:
    """The file of one tiny checkpoint."""
    return dict(json.loads((DATA / "variants" / f"{family}.json").read_text()))


def rows(family: str) -> Iterator[Row]:
    """Every configuration that was tried of one tiny checkpoint, each base before its variants."""
    for base in recorded(family)["bases"]:
        file, sets, shapes = base["file"], base["set"], unfolded(base["tensors"])
        config = changed(json.loads((DATA / family / file).read_text()), sets)
        name = f"{file} {json.dumps(sets)}" if sets else file
        expected = np.array(base["gives"])
        yield Row(family, name, config, config, {}, shapes, expected, alike=True)
        for row in base["variants"]:
            other = changed(config, row.get("set", {}), row.get("drop", ""))
            change = {key: row[key] for key in ("set", "drop") if key in row}
            found = row.get("gives", base["gives"])
            gives = None if found is None else np.array(found)
            made = shapes | unfolded(row.get("tensors", {}))
            kept = {key: shape for key, shape in made.items() if shape is not None}
            yield Row(family, name, config, other, change, kept, gives, alike="gives" not in row)


class Files:
    """Checkpoints of the rows, with weights that follow from their names.

    Args:
        folder: Where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, Path] = {}

    def checkpoint(self, row: Row) -> Checkpoint:
        """The checkpoint of a row; rows with the same tensors share a file."""
        kind = json.dumps([row.family, row.shapes])
        if kind not in self._written:
            made = self.folder / str(len(self._written))
            made.mkdir()
            arrays = tensors(row.shapes, recorded(row.family)["norm"])
            save_file(arrays, made / "model.safetensors", {"format": "pt"})
            self._written[kind] = made
        path = self._written[kind]
        (path / "config.json").write_text(json.dumps(row.config))
        return open_checkpoint(path)


def inputs(row: Row) -> dict[str, Array]:
    """What the outputs were recorded for, by the names of entries' inputs."""
    count = int(recorded(row.family)["tokens"])
    ids, mask = input_ids(count), attention_mask(count)
    if not is_padded(row):
        return {"input_ids": ids}
    has_types = row.config["model_type"] in ("bert", "nomic_bert")
    types = np.arange(count, dtype=np.int64)[None] % (2 if has_types else 1)
    return {
        "input_ids": np.where(mask, ids, 1),
        "attention_mask": mask,
        "token_type_ids": types,
    }


def is_padded(row: Row) -> bool:
    """Whether it is an encoder, whose last tokens are padding."""
    return row.config["model_type"] in ("bert", "roberta", "distilbert", "nomic_bert")


def unpadded(row: Row, outputs: Array) -> Array:
    """Those of the tokens that are no padding."""
    return outputs[:, :-PADDED] if is_padded(row) else outputs


def error(found: Array, expected: Array) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
