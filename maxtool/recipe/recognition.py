"""Recognition of checkpoints, without expectation: an answer, never an error about the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from maxtool.errors import ModelMismatch
from maxtool.recipe.dense_modules import without_folders
from maxtool.recipe.load import find_recipe
from maxtool.recipe.match_checkpoint import plan
from maxtool.recipe.plan import shown
from maxtool.weights import Checkpoint


@dataclass(frozen=True)
class Recognition:
    """Answer of the recipes about a checkpoint."""

    recipe: str | None  # the one that recognises it; None if none does
    parameters: int = 0  # of the model, that its tensors make
    # Why no recipe recognises it, or what is missing, unused, of the wrong shape, not supported.
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    part: str = ""  # what is read of a model of several parts, and what is left out


def recognise(checkpoint: Checkpoint) -> Recognition:
    """Match a checkpoint with the recipes, from headers alone."""
    checkpoint = without_folders(checkpoint)
    try:
        recipe = find_recipe(checkpoint)
    except ModelMismatch as error:
        return Recognition(None, problems=[error.what])
    try:
        planned = plan(recipe, checkpoint)
    except ModelMismatch as error:
        return Recognition(recipe.name, problems=list(error.problems) or [error.what])
    return Recognition(
        recipe.name,
        len(planned.parameters),
        shown(planned.misfits()),
        planned.notes,
        recipe.text_part.note if recipe.text_part else "",
    )
