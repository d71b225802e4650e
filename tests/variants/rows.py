"""Configurations that transformers has computed: what was recorded, and checkpoints of it.

``tests/data/record_variants.py`` recorded the tiny checkpoints' configurations with one key
changed, ``record_random.py`` random ones of each family.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.random_configs import ENCODERS
from tests.data.seeded import (
    PADDED,
    SAMPLES,
    Array,
    Config,
    attention_mask,
    changed,
    input_ids,
    sample,
    tensors,
    unfolded,
)

DATA = Path(__file__).resolve().parents[1] / "data"
TINY = tuple(sorted(file.stem for file in (DATA / "variants").glob("tiny-*.json")))
RANDOM = tuple(sorted(file.name[:-8] for file in (DATA / "random").glob("*.json.gz")))
FAMILIES = (*TINY, *RANDOM)
ALLOWED = 3e-5
"""What float32 arithmetic and six digits add to the recorded outputs, relatively."""
TOKENS = 40
"""Of the random configurations."""

Shapes = dict[str, list[int]]


@dataclass(frozen=True, eq=False)
class Row:
    """One configuration.

    Attributes:
        family: The tiny checkpoint that it is a variant of, or the model type it was drawn for.
        base: Which configuration of that.
        usual: That configuration.
        config: As a config.json would have it.
        change: What differs from the base.
        shapes: The tensors of its file.
        expected: Some outputs of transformers; None where it refuses.
        alike: Whether those are the base's, all of them.
        norm: What the weights of norms are around.
        tokens: How many were given.
        size: Ids of tokens are below it.
        more: What is recorded of random configurations besides: ``pooled``; ``first`` and
            ``cached``, the outputs of calls with a cache; ``gguf``.
    """

    family: str
    base: str
    usual: Config
    config: Config
    change: Config
    shapes: Shapes
    expected: Array | None
    alike: bool
    norm: float
    tokens: int
    size: int = 61
    more: Config = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.family}/{self.base} {json.dumps(self.change)}"

    @cached_property
    def is_encoder(self) -> bool:
        """Return whether it gives vectors of tokens, of which the last are padding."""
        return self.family in ENCODERS or self.config["model_type"] in ENCODERS

    @cached_property
    def files(self) -> str:
        """Equal where the tensors are."""
        return json.dumps([self.norm, self.shapes])


def rows(family: str) -> Iterator[Row]:
    """Every configuration that was recorded of a family, each base before its variants."""
    yield from _variants(family) if family in TINY else _random(family)


@cache
def _recorded(family: str) -> dict[str, Any]:
    if family in TINY:
        return dict(json.loads((DATA / "variants" / f"{family}.json").read_text()))
    return dict(json.loads(gzip.decompress((DATA / "random" / f"{family}.json.gz").read_bytes())))


def _variants(family: str) -> Iterator[Row]:
    recorded = _recorded(family)
    known = {"norm": recorded["norm"], "tokens": int(recorded["tokens"])}
    for base in recorded["bases"]:
        file, sets, shapes = base["file"], base["set"], unfolded(base["tensors"])
        config = changed(json.loads((DATA / family / file).read_text()), sets)
        name = f"{file} {json.dumps(sets)}" if sets else file
        expected = np.array(base["gives"])
        yield Row(family, name, config, config, {}, shapes, expected, alike=True, **known)
        for row in base["variants"]:
            other = changed(config, row.get("set", {}), row.get("drop", ""))
            change = {key: row[key] for key in ("set", "drop") if key in row}
            actual = row.get("gives", base["gives"])
            gives = None if actual is None else np.array(actual)
            result = shapes | unfolded(row.get("tensors", {}))
            kept = {key: shape for key, shape in result.items() if shape is not None}
            alike = "gives" not in row
            yield Row(family, name, config, other, change, kept, gives, alike, **known)


def _random(family: str) -> Iterator[Row]:
    recorded = _recorded(family)
    for index, row in enumerate(recorded["rows"]):
        config = row["config"]
        yield Row(
            family=family,
            base=f"random {index}",
            usual=config,
            config=config,
            change={},
            shapes=unfolded(row["tensors"]),
            expected=np.array(row["gives"] + row.get("pooled", [])),
            alike=False,
            norm=recorded["norm"],
            tokens=TOKENS,
            size=config.get("text_config", config)["vocab_size"],
            more={key: row[key] for key in ("pooled", "first", "cached", "gguf") if key in row},
        )


def without(family: str) -> Iterator[tuple[str, Config, Config]]:
    """The first random configuration without each of its keys: as it is, and completed."""
    recorded = _recorded(family)
    config = recorded["rows"][0]["config"]
    for key, complete in recorded["without"].items():
        left = {other: value for other, value in config.items() if other != key}
        whole = config | complete
        yield key, left, {k: value for k, value in whole.items() if complete.get(k, 0) is not None}


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
        if row.files not in self._written:
            result = self.folder / str(len(self._written)) / row.family
            result.mkdir(parents=True)
            save_file(tensors(row.shapes, row.norm), result / "model.safetensors", {"format": "pt"})
            self._written[row.files] = result
        path = self._written[row.files]
        (path / "config.json").write_text(json.dumps(row.config))
        return open_checkpoint(path)


def inputs(row: Row) -> dict[str, Array]:
    """Return the inputs of the recorded outputs, by the names of entries' inputs."""
    lowest = 6 if row.is_encoder and row.family in RANDOM else 3
    ids, mask = input_ids(row.tokens, row.size, lowest), attention_mask(row.tokens)
    if not row.is_encoder:
        return {"input_ids": ids}
    has_types = row.config["model_type"] in ("bert", "electra", "nomic_bert", "deberta-v2", "gte")
    types = np.arange(row.tokens, dtype=np.int64)[None] % (2 if has_types else 1)
    pad = (row.config.get("pad_token_id") or 0) if row.family in RANDOM else 1
    return {
        "input_ids": np.where(mask, ids, pad),
        "attention_mask": mask,
        "token_type_ids": types,
    }


def unpadded(row: Row, outputs: Array) -> Array:
    """Return the outputs of tokens that are not padding."""
    return outputs[:, :-PADDED] if row.is_encoder else outputs


def sampled(row: Row, outputs: Sequence[Array]) -> Array:
    """A few of a model's outputs, those that were recorded: tokens that are not padding, pooled."""
    result = [sample(unpadded(row, outputs[0])), *(sample(each[:, None]) for each in outputs[1:])]
    return np.concatenate(result)[: 2 * SAMPLES if row.more.get("pooled") else SAMPLES]


def error(array: Array, expected: Array) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float(np.linalg.norm(array - expected) / np.linalg.norm(expected))
