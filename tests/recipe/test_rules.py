"""Rules that hold under some configurations, and splits after other steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import Recipe, emissions, load_recipe
from maxtool.recipe.bind import bind

RECIPE = """
schema = 2
name = "ways"
architecture = "decoder"
match = { hf = { model_type = "ways" } }
constants = { gguf = { "general.architecture" = "ways" } }
[config]
n_layers = { type = "int", hf = "layers", gguf = "{arch}.layers" }
experts = { type = "int", hf = "experts", gguf = "{arch}.experts" }
mixed = { type = "flags", optional = true, hf = "mixed", gguf = "{arch}.mixed" }
block = { type = "str", hf = "block", gguf = "{arch}.block" }
scale = { type = "float", hf = "scale", gguf = "{arch}.scale" }
scales = { type = "floats", optional = true, hf = "scales", gguf = "{arch}.scales" }
[weights.hf]
"head" = "head"
"l.{layer}.first" = [
  { from = "m.l.{layer}.one", when = { block = "serial" } },
  { from = "m.l.{layer}.two", when = { block = "parallel" } },
]
"l.{layer}.second" = { from = "m.l.{layer}.one", when = { block = "parallel" } }
[weights.hf."l.{layer}.[a,b]"]
from = "m.l.{layer}.ab"
part = "[a,b]"
ops = [
  { op = "split", axis = 0, sizes = [1, 2] },
  { op = "divide", factors = ["scale", "scales.[a,b]"] },
]
[[weights.hf."l.{layer}.up"]]
from = "m.l.{layer}.x.{expert}.up"
op = "stack"
axis = 0
count = "experts"
over = "expert"
when = { mixed = true }
[[weights.hf."l.{layer}.up"]]
from = "m.l.{layer}.up"
[weights.hf."l.{layer}.q"]
from = "m.l.{layer}.qk"
ops = [{ op = "transpose", axes = [1, 0] }, { op = "split", axis = 0, sizes = [2, 4] }]
part = 0
[weights.hf."l.{layer}.k"]
from = "m.l.{layer}.qk"
ops = [{ op = "transpose", axes = [1, 0] }, { op = "split", axis = 0, sizes = [2, 4] }]
part = 1
"""
VALUES = {"n_layers": 2, "experts": 3, "mixed": (True, False), "block": "serial"}
VALUES |= {"scale": 1.0, "scales": None}


def load(tmp_path: Path, text: str = RECIPE) -> Recipe:
    (tmp_path / "ways.toml").write_text(text)
    return load_recipe(str(tmp_path / "ways.toml"))


def sources(recipe: Recipe, parameter: str, **changes: object) -> tuple[str, ...] | None:
    rule = bind(recipe, "hf", parameter, VALUES | changes)
    return None if rule is None else rule.sources


def test_the_first_way_that_applies(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    experts = tuple(f"m.l.0.x.{expert}.up" for expert in range(3))
    assert sources(recipe, "l.0.up") == experts
    assert sources(recipe, "l.1.up") == ("m.l.1.up",)
    assert sources(recipe, "l.1.up", mixed=None) == tuple(n.replace("0.x", "1.x") for n in experts)
    assert sources(recipe, "l.0.first") == ("m.l.0.one",)
    assert sources(recipe, "l.0.first", block="parallel") == ("m.l.0.two",)
    assert sources(recipe, "l.0.second", block="parallel") == ("m.l.0.one",)
    assert sources(recipe, "l.0.second") is None


def test_written_as_read(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    shapes = {"l.0.up": (3, 4, 5), "l.1.up": (4, 5), "l.0.first": (7,)}
    found = {made.name: made.shape for made in emissions(recipe, "hf", VALUES, shapes)}
    stacked = {f"m.l.0.x.{expert}.up": (4, 5) for expert in range(3)}
    assert found == {**stacked, "m.l.1.up": (4, 5), "m.l.0.one": (7,)}


def test_a_split_after_another_step(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    stored = np.arange(18.0).reshape(3, 6)
    rules = {name: bind(recipe, "hf", name, VALUES) for name in ("l.1.q", "l.1.k")}
    parts = {name: rule.apply([stored]) for name, rule in rules.items() if rule}
    np.testing.assert_array_equal(parts["l.1.k"], stored[:, 2:].T)
    shapes = {name: array.shape for name, array in parts.items()}
    (made,) = emissions(recipe, "hf", VALUES, shapes)
    assert (made.name, made.shape) == ("m.l.1.qk", (3, 6))
    np.testing.assert_array_equal(made.apply([parts[name] for name in made.parameters]), stored)


def test_numbers_that_are_in_the_weights(tmp_path: Path) -> None:
    """Divide the parts of a tensor, each by its own numbers; where all are one, leave it alone."""
    recipe, stored = load(tmp_path), np.ones((3, 2), np.float32)
    values = VALUES | {"scale": 2.0, "scales": (0.5, 4.0)}
    rules = {name: bind(recipe, "hf", name, values) for name in ("l.1.a", "l.1.b")}
    parts = {name: rule.apply([stored]) for name, rule in rules.items() if rule}
    assert [part.ravel()[0] for part in parts.values()] == [1.0, 0.125]
    shapes = {name: array.shape for name, array in parts.items()}
    (made,) = emissions(recipe, "hf", values, shapes)
    np.testing.assert_array_equal(made.apply([parts[name] for name in made.parameters]), stored)
    usual = bind(recipe, "hf", "l.1.b", VALUES)
    assert usual is not None
    assert [step.op for step in usual.steps] == ["split"]
    half = np.ones((3, 2), np.float16)
    assert usual.apply([half]).dtype == np.float16


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"scale", "scales', '"other", "scales', "divide: 'other' is not a field of [config]"),
        ('"scale", "scales', '"block", "scales', "divide: field 'block' is not of type float"),
        ('"scale", "scales', '"scale.0", "scales', "divide: field 'scale' is not of type floats"),
        ('"scale", "scales', '"scales", "scales', "divide: field 'scales' is not of type float"),
        (
            '"scale", "scales',
            '3, "scales',
            "factors needs a list of fields, those of several numbers",
        ),
        (', when = { block = "parallel" } }', " }", "is used by 2 rules, which has no inverse"),
        ("sizes = [2, 4] }]\npart = 1", "sizes = [4, 2] }]\npart = 1", "split in different ways"),
        ("axes = [1, 0] }, { op", "axes = [0, 1] }, { op", "split in different ways"),
        ("{ block =", "{ blocks =", "'blocks' is not a field of [config]"),
        ("part = 1", "part = 0", "needs a rule for each of the parts [0, 1], found [0, 0]"),
    ],
)
def test_problems(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in RECIPE
    text = new.join(RECIPE.rsplit(old, 1))
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert problem in str(caught.value)
