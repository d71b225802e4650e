"""A recorded configuration as a checkpoint: what a recipe reads from it, and converts it to.

What a recipe reads as it stands is told from what a damaged one reads by fields and rules alone, so
that only what differs is computed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from maxtool.architectures import build
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MaxtoolError
from maxtool.recipe import (
    Plan,
    Recipe,
    emissions,
    find_recipe,
    plan,
    resolve_config,
    written_keys,
    written_notes,
)
from maxtool.recipe.expressions import same
from maxtool.recipe.naming import title
from maxtool.recipe.read_config import ResolvedConfig
from maxtool.recipe.schema import Field
from maxtool.recipe.text_part import within
from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.seeded import Array, Config
from tests.variants import ours
from tests.variants.crashes import crashes_refuse
from tests.variants.rows import ALLOWED, Row, error, inputs, sampled
from tests.variants.written_files import folder_differences, gguf_differences


@dataclass
class Reading:
    """A checkpoint as a recipe reads it, and what of that decides the outputs."""

    checkpoint: Checkpoint
    recipe: Recipe
    resolved: ResolvedConfig

    @property
    def values(self) -> Config:
        """The fields."""
        return self.resolved.values

    @cached_property
    def plan(self) -> Plan:
        """The parameters bound to tensors.

        Raises:
            MaxtoolError: If they do not fit.
        """
        result = plan(self.recipe, self.checkpoint)
        result.check()
        return result


@dataclass
class Case:
    """One recorded configuration as a checkpoint, and what the recipe as it stands reads there.

    Attributes:
        row: What was recorded.
        checkpoint: In the dialect that is read.
        usual: What the recipe as it stands makes of it, None where it refuses it.
        folder: For what it is converted to.
        recipe: The name of the recipe that reads it.
        source: The name of the recipe of the recorded configuration.
        is_unread: Whether the recipe as it stands refuses the configuration or the tensors, and
            not only the model that they make.
    """

    row: Row
    checkpoint: Checkpoint
    usual: Reading | None
    folder: Path
    recipe: str
    source: str
    is_unread: bool = False
    known: dict[str, Array] = field(default_factory=dict)

    @property
    def is_recognised(self) -> bool:
        """Return whether its recipe is one that GGUF files are recognised by."""
        return self.usual is not None and bool(self.usual.recipe.match["gguf"].values)

    def is_about(self, words: frozenset[str] | None) -> bool:
        """Return whether one of some keys is what it differs in, or many are."""
        change = self.row.change
        keys = {*change.get("set", {}), *filter(None, [change.get("drop")])}
        return words is None or not keys or any(key.rpartition(".")[2] in words for key in keys)

    def fault(self, recipe: Recipe) -> str | None:
        """Return the reason why a recipe is wrong here, None if it is not."""
        try:
            with crashes_refuse():
                bound = within(recipe, self.checkpoint)
                reading = Reading(self.checkpoint, bound, resolve_config(bound, self.checkpoint))
                _ = reading.plan
        except MaxtoolError as refusal:
            return f"refused: {refusal}" if self.usual is not None else None
        if self.is_unread:
            return f"{self.row}: read, which is refused (refused.py)"
        try:
            wrong = self._reads_wrong(reading) or self._writes_wrong(reading)
        except MaxtoolError as refusal:
            wrong = f"read, but {refusal}" if self.usual is not None else None
        return f"{self.row}: {wrong}" if wrong else None

    def _reads_wrong(self, reading: Reading) -> str | None:
        if self.usual is not None and reading.resolved.notes != self.usual.resolved.notes:
            return f"notes {reading.resolved.notes}"
        if self.usual is not None and _alike(self.usual, reading):
            return None
        means = ours.meaning(reading.plan)
        if self.usual is not None and means == ours.meaning(self.usual.plan):
            return None
        return self._computes_wrong(reading)

    def problems(self) -> Iterator[str]:
        """Return the differences of the recipe's outputs and conversions from the recorded ones."""
        assert self.usual is not None
        if wrong := self._computes_wrong(self.usual):
            yield f"{self.row}: {wrong}"
        if self.is_converted and (wrong := self.conversion(self.usual.recipe)):
            yield f"{self.row}: {wrong}"

    def _computes_wrong(self, reading: Reading) -> str | None:
        means = ours.meaning(reading.plan)
        if means not in self.known:
            self.known[means] = sampled(self.row, ours.outputs(reading.plan, inputs(self.row)))
        actual, expected = self.known[means], self.row.expected
        assert expected is not None
        if self.checkpoint.format == "gguf":
            expected = expected[: len(actual)]  # it has no place for poolers
        off = error(actual, expected)
        return None if off <= ALLOWED else f"outputs are {off:.1e} off"

    def _writes_wrong(self, reading: Reading) -> str | None:
        """Return the problems with the conversion of the checkpoint to the other dialect."""
        if not self.is_converted or self.usual is None:
            return None
        if _writes(self.usual) == _writes(reading):
            return None
        return self.conversion(reading.recipe)

    @property
    def is_converted(self) -> bool:
        """Return whether what it converts to is known; a folder that has no form in GGUF."""
        return "gguf" in self.row.more or (
            self.usual is not None and not self.usual.recipe.knows("gguf")
        )

    def conversion(self, recipe: Recipe) -> str | None:
        """Convert into the other dialect, if there is one, and compare with what was recorded."""
        if not recipe.knows("gguf"):
            return self._back(recipe)
        if self.checkpoint.format == "gguf":
            is_other = self.row.is_encoder and recipe.name != self.source
            return None if is_other else self._back(recipe)
        output, name = self.folder / "model.gguf", title(self.row.family)
        result = prepare(Request(self.checkpoint.path, output, name=name, force=True))
        convert(result)
        keys = (key for key in result.metadata for note in result.notes if f"as {key};" in note)
        return next(gguf_differences(self.row, output, set(keys)), None)

    def _back(self, recipe: Recipe) -> str | None:
        output = self.folder / "back"
        shutil.rmtree(output, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        result = prepare(Request(self.checkpoint.path, output, recipe=recipe.name))
        convert(result)
        # What is not needed to run, as the notes say: outputs are compared without it.
        dropped = [] if result.plan is None else result.plan.dropped
        own = recipe.name == self.source
        differences = folder_differences(self.row, output, is_own=own, dropped=dropped)
        if wrong := next(differences, None):
            return wrong
        again = open_checkpoint(output)
        if find_recipe(again).name != recipe.name:
            return "is recognised as another model"
        values, before = (resolve_config(recipe, each).values for each in (again, self.checkpoint))
        kept = [name for name, each in recipe.fields.items() if not _is_lost(each)]
        fields = [name for name in kept if not same(values[name], before[name])]
        return f"reads {fields} otherwise from what it wrote" if fields else None


def read(recipe: Recipe, checkpoint: Checkpoint, row: Row) -> Reading | None:
    """A checkpoint as a recipe reads it, None if it does not or has no room for the tokens."""
    try:
        recipe = within(recipe, checkpoint)
        reading = Reading(checkpoint, recipe, resolve_config(recipe, checkpoint))
        result = reading.plan
        module = build(recipe.architecture, result.config)
    except MaxtoolError:
        return None
    fits = module.context is None or module.context >= row.tokens
    return reading if fits else None


def _is_lost(field: Field) -> bool:
    """Return whether GGUF has no place for it."""
    return any(way.lost for way in field.spellings.get("gguf", ()))


def _alike(left: Reading, right: Reading) -> bool:
    """Return whether two readings of a checkpoint must have one plan."""
    dialect = left.plan.dialect
    return left.values == right.values and left.recipe.rules[dialect] == right.recipe.rules[dialect]


def _writes(reading: Reading) -> str:
    """All that decides what a checkpoint converts to."""
    recipe, values = reading.recipe, reading.values
    is_folder = reading.checkpoint.format == "gguf" or not recipe.knows("gguf")
    target: Any = "hf" if is_folder else "gguf"
    shapes = {name: binding.shape for name, binding in reading.plan.parameters.items()}
    keys = list(written_keys(recipe, target, values, dict.fromkeys(EXTRA, 0)).items())
    notes = written_notes(recipe, target, values)
    order = recipe.order.get(target, ())
    return repr(
        (values, keys, notes, EXTRA & {*order}, emissions(recipe, target, values, shapes))
    ) + ours.meaning(reading.plan)


EXTRA = frozenset({"general.name", "general.size_label", "general.file_type"})
