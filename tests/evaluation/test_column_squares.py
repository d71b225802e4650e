"""Sums of squares that artifacts tell of, beside the graph evaluated in float64."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.architectures import build, graph_of
from maxtool.artifact.build import named_graph
from maxtool.artifact.contents import Contents
from maxtool.artifact.graph_outputs import Elements
from maxtool.cli.app import app
from maxtool.compiler.targets import parse_target
from maxtool.evaluation.column_squares import candidates, measure
from maxtool.evaluation.language_model import LanguageModel
from maxtool.evaluation.windows import cut
from maxtool.parity import evaluate, evaluator
from maxtool.recipe import find_recipe, plan
from maxtool.recipe.matrix_names import weighed_matrices
from maxtool.weights import open_checkpoint
from tests.parity import yardstick

Array = np.ndarray[Any, Any]
DATA = yardstick.FOLDER.parent
LENGTH = 24


def maxtool(*words: object) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output


class Recorder:
    """The operands of all products of a graph, and which experts were chosen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sums: dict[str, Array] = {}
        self.counts: dict[str, Array] = defaultdict(lambda: np.zeros(1, np.int64))
        self._last: tuple[str, Array] = "", np.zeros(0)
        original = evaluator.DEFINITIONS["expert_linear"]

        def expert_linear(x: Array, weight: Array, chosen: Array) -> Any:
            self._split(weight, chosen)
            return original(x, weight, chosen)

        definitions = {**evaluator.DEFINITIONS, "expert_linear": expert_linear}
        monkeypatch.setattr(evaluator, "DEFINITIONS", definitions)

    def of(self, name: str) -> Callable[[Array], Array]:
        """A rounding that rounds nothing, and adds the squares of what it sees."""

        def note(x: Array) -> Array:
            self._last = name, x
            rows = x.reshape(-1, x.shape[-1])
            self.sums[name] = self.sums.get(name, 0) + (rows**2).sum(0, keepdims=True)
            self.counts[name] = self.counts[name] + len(rows)
            return x

        return note

    def _split(self, weight: Array, chosen: Array) -> None:
        """Undo the sum over all rows, and add those of each expert: a loop over the choices."""
        name, x = self._last
        rows = np.broadcast_to(
            x if x.ndim > chosen.ndim else x[..., None, :], (*chosen.shape, x.shape[-1])
        )
        sums, counts = np.zeros((len(weight), x.shape[-1])), np.zeros(len(weight), np.int64)
        for index in np.ndindex(*chosen.shape):
            sums[chosen[index]] += rows[index] ** 2
            counts[chosen[index]] += 1
        earlier = self.sums.pop(f"{name} by expert", 0), self.counts.pop(f"{name} by expert", 0)
        self.sums[f"{name} by expert"] = sums + earlier[0]
        self.counts[f"{name} by expert"] = counts + earlier[1]

    def found(self, name: str) -> tuple[Array, Array]:
        key = f"{name} by expert" if f"{name} by expert" in self.sums else name
        return self.sums[key], self.counts[key]


MODELS = [
    "tiny-mixtral",
    pytest.param("tiny-gpt2", marks=pytest.mark.slow),
    pytest.param("tiny-phi3", marks=pytest.mark.slow),
    pytest.param("tiny-qwen3-moe", marks=pytest.mark.slow),
    pytest.param("tiny-gemma3", marks=pytest.mark.slow),
]


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_sums_are_those_of_the_graph(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maxtool("compile", DATA / name, "-o", tmp_path / "artifact", "--dtype", "float32")
    model = LanguageModel(tmp_path / "artifact")
    ids = np.random.default_rng(0).integers(0, model.vocabulary, 3 * LENGTH)
    windows = cut(ids, LENGTH, None)
    planned = plan(find_recipe(open_checkpoint(DATA / name)), open_checkpoint(DATA / name))
    names = weighed_matrices(planned.recipe, candidates(model.loaded), head=True)
    seen: list[int] = []
    squares = measure(model, windows, names, seen.append)
    assert seen == [LENGTH] * 3

    module = build(planned.recipe.architecture, planned.config)
    (forward,) = [entry for entry in module.entries() if entry.name == "forward"]
    recorder = Recorder(monkeypatch)
    rounding = {parameter: recorder.of(parameter) for parameter in names}
    graph = graph_of(module, forward)
    functions = (named_graph(forward, graph),)
    contents = Contents(functions, parse_target("cpu"), planned.read, {}, None)
    evaluate(graph, [windows.ids], Elements(contents), rounding)
    products = {name for name in graph.weight_values if recorder.counts[name].any()}
    assert products == names.keys() == squares.keys()
    for parameter, each in squares.items():
        sums, counts = recorder.found(parameter)
        np.testing.assert_array_equal(each.counts, counts, err_msg=parameter)
        error = np.abs(each.sums - sums).max() / sums.max()
        assert error < 1e-5, f"{parameter}: {error}"
