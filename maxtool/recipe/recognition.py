"""Recognition of checkpoints, without expectation: an answer, never an error about the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from maxtool.errors import ModelMismatch
from maxtool.recipe.layer_ranges import folded
from maxtool.recipe.load import find_recipe
from maxtool.recipe.planning import plan
from maxtool.weights import Checkpoint


@dataclass(frozen=True)
class Recognition:
    """Answer of the recipes about a checkpoint.

    Attributes:
        recipe: The recipe that recognises it; None if none does.
        parameters: How many parameters of the model its tensors make.
        problems: What does not fit: why no recipe recognises it, or what is missing, unused, of
            the wrong shape, or not supported.
        notes: What was seen and passed over.
    """

    recipe: str | None
    parameters: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recognise(checkpoint: Checkpoint) -> Recognition:
    """Match a checkpoint with the recipes, from headers alone."""
    try:
        recipe = find_recipe(checkpoint)
    except ModelMismatch as error:
        return Recognition(None, problems=[error.what])
    try:
        planned = plan(recipe, checkpoint)
    except ModelMismatch as error:
        return Recognition(recipe.name, problems=list(error.problems) or [error.what])
    found = {
        "not supported": planned.refused,
        "missing": planned.missing,
        "wrong": planned.misshapen,
        "not used": planned.unused,
    }
    problems = [f"{kind}: {line}" for kind, lines in found.items() for line in folded(lines)]
    return Recognition(recipe.name, len(planned.parameters), problems, planned.notes)
