"""Future models that need a recipe only: fused projections, transposed weights, experts, norms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import Dialect, Recipe, load_recipe
from maxtool.recipe.bind import bind, emissions

RECIPE = """
schema = 2
name = "other"
architecture = "decoder"
match = { hf = { model_type = "other" } }
constants = { gguf = { "general.architecture" = "other" } }
[config]
heads = { type = "int", hf = "h", gguf = "{arch}.h" }
groups = { type = "int", hf = "g", gguf = "{arch}.g" }
dim = { type = "int", hf = "d", gguf = "{arch}.d" }
experts = { type = "int", hf = "e", gguf = "{arch}.e" }
[order]
gguf = ["{arch}.h", "{arch}.g", "{arch}.d", "{arch}.e"]
[weights.hf]
"l.{layer}.fc" = { from = "l.{layer}.conv", op = "transpose", axes = [1, 0] }
"norm" = "norm"
[weights.hf."l.{layer}.q"]
from = "l.{layer}.qkv"
op = "split"
axis = 0
sizes = [["heads", "dim"], ["groups", "dim"], ["groups", "dim"]]
part = 0
[weights.hf."l.{layer}.k"]
from = "l.{layer}.qkv"
op = "split"
axis = 0
sizes = [["heads", "dim"], ["groups", "dim"], ["groups", "dim"]]
part = 1
[weights.hf."l.{layer}.v"]
from = "l.{layer}.qkv"
op = "split"
axis = 0
sizes = [["heads", "dim"], ["groups", "dim"], ["groups", "dim"]]
part = 2
[weights.hf."l.{layer}.gate"]
from = ["l.{layer}.g1", "l.{layer}.g2"]
op = "concat"
axis = 0
sizes = [1, "heads"]
[weights.hf."l.{layer}.up"]
from = "l.{layer}.x.{expert}.up"
over = "expert"
ops = [{ op = "stack", axis = 0, count = "experts" }, { op = "transpose", axes = [0, 2, 1] }]
[weights.gguf]
"l.{layer}.q" = { from = "blk.{layer}.q", op = "rope_pairs_to_halves", heads = "heads" }
"l.{layer}.k" = { from = "blk.{layer}.k", op = "rope_pairs_to_halves", heads = "groups" }
"l.{layer}.v" = "blk.{layer}.v"
"l.{layer}.up" = "blk.{layer}.up"
"l.{layer}.fc" = "blk.{layer}.fc"
"l.{layer}.gate" = "blk.{layer}.gate"
"norm" = { from = "norm", op = "add", value = -1 }
"""
VALUES = {"heads": 4, "groups": 2, "dim": 6, "experts": 3}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    file = tmp_path / "other.toml"
    file.write_text(RECIPE)
    return load_recipe(str(file))


def tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {"norm": np.arange(5, dtype=np.float32) / 4}
    for layer in range(2):
        made[f"l.{layer}.qkv"] = random.normal(size=(48, 5)).astype(np.float32)
        made[f"l.{layer}.conv"] = random.normal(size=(5, 7)).astype(np.float32)
        made[f"l.{layer}.g1"] = random.normal(size=(1, 5)).astype(np.float32)
        made[f"l.{layer}.g2"] = random.normal(size=(4, 5)).astype(np.float32)
        for expert in range(3):
            made[f"l.{layer}.x.{expert}.up"] = random.normal(size=(5, 8)).astype(np.float32)
    return made


PARAMETERS = ["norm"] + [
    f"l.{i}.{n}" for i in range(2) for n in ("q", "k", "v", "up", "fc", "gate")
]


def read(recipe: Recipe, dialect: Dialect, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    result = {}
    for name in PARAMETERS:
        rule = bind(recipe, dialect, name, VALUES)
        assert rule is not None
        result[name] = rule.apply([given[source] for source in rule.sources])
        assert result[name].shape == rule.shape([given[source].shape for source in rule.sources])
    return result


def write(recipe: Recipe, dialect: Dialect, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    made = emissions(recipe, dialect, VALUES, {name: array.shape for name, array in given.items()})
    result = {e.name: e.apply([given[name] for name in e.parameters]) for e in made}
    assert {e.name: e.shape for e in made} == {name: array.shape for name, array in result.items()}
    return result


def test_there_and_back(recipe: Recipe) -> None:
    given = tensors()
    parameters = read(recipe, "hf", given)
    np.testing.assert_array_equal(parameters["l.1.k"], given["l.1.qkv"][24:36])
    np.testing.assert_array_equal(parameters["l.1.up"][2], given["l.1.x.2.up"].T)
    np.testing.assert_array_equal(parameters["l.0.fc"], given["l.0.conv"].T)
    gguf = write(recipe, "gguf", parameters)
    np.testing.assert_array_equal(gguf["norm"], given["norm"] + 1)
    assert gguf["blk.0.up"].shape == (3, 8, 5)
    again = write(recipe, "hf", read(recipe, "gguf", gguf))
    assert again.keys() == given.keys()
    for name, array in given.items():
        assert again[name].tobytes() == array.tobytes(), name


def test_a_split_needs_all_its_parts(recipe: Recipe) -> None:
    with pytest.raises(ConfigurationError, match="all parts"):
        emissions(recipe, "hf", VALUES, {"l.0.q": (24, 5), "l.0.k": (12, 5)})


def test_a_parameter_without_a_rule(recipe: Recipe) -> None:
    with pytest.raises(ConfigurationError, match="no way to write"):
        emissions(recipe, "hf", VALUES, {"bogus": (1,)})
