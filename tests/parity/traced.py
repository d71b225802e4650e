"""Checkpoints as their recipes read them, traced, and computed in float64 without a compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxtool.architectures import Architecture, build, graph_of
from maxtool.artifact.build import named_graph
from maxtool.artifact.contents import Contents
from maxtool.artifact.graph_outputs import GraphRunner
from maxtool.compiler.targets import parse_target
from maxtool.recipe import find_recipe, load_recipe, plan
from maxtool.weights import Checkpoint

Array = np.ndarray[Any, Any]


class TracedModel:
    """The graphs of a checkpoint.

    Args:
        checkpoint: Recognised by a recipe of ours.
        recipe: The name of the one to read it by, where that is another.
        changes: Other values of the configuration's fields.

    Raises:
        ModelMismatch: If no recipe recognises it, or it does not fit its recipe.
    """

    def __init__(
        self, checkpoint: Checkpoint, *, recipe: str | None = None, **changes: object
    ) -> None:
        planned = plan(load_recipe(recipe) if recipe else find_recipe(checkpoint), checkpoint)
        planned.check()
        self.module: Architecture = build(
            planned.recipe.architecture, {**planned.config, **changes}
        )
        functions = [
            named_graph(entry, graph_of(self.module, entry))
            for entry in self.module.entries()
            if entry.name in planned.recipe.entries
        ]
        target = parse_target("cpu")
        self._runner = GraphRunner(Contents(tuple(functions), target, planned.read, {}, None))

    def run(self, entry: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of an entry without state, by name."""
        return self._runner.run(entry, inputs)

    def forward(self, ids: Array) -> Array:
        """A decoder's logits at every position."""
        return self.run("forward", {"input_ids": ids})["logits"]

    def cached(self, ids: Array, starts: Sequence[int]) -> Array:
        """A decoder's logits after the last token of calls in turn, which begin at ``starts``."""
        state, logits = self._runner.new_state(batch=len(ids)), []
        for start, stop in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
            inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
            entry = "decode" if stop - start == 1 else "prefill"
            logits.append(self._runner.run(entry, inputs, state)["logits"])
        return np.stack(logits, axis=1)
