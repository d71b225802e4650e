"""Formulas on whatever a recipe and a configuration say: a value or an error of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from maxtool.errors import ConfigurationError
from maxtool.recipe import Recipe, load_recipe, resolve_config
from maxtool.recipe.formulas import FORMULAS
from maxtool.recipe.schema import DIALECTS
from maxtool.recipe.write_config import written_keys, written_notes
from maxtool.weights import open_checkpoint

HEAD = """
schema = 1
name = "x"
architecture = "decoder"
match.hf.model_type = ["x"]
constants.gguf."general.architecture" = "x"
weights.hf."w" = "w"
weights.gguf."w" = "w"

[config]
n_layers = { type = "int", hf = "n_layers", gguf = "n_layers", default = 4 }
count = { type = "count", hf = "count", gguf = "count", default = 0 }
float = { type = "float", hf = "float", gguf = "float", optional = true }
rope_factor = { type = "float", hf = "rope_factor", gguf = "rope_factor", optional = true }
text = { type = "str", hf = "text", gguf = "text", default = "a" }
bool = { type = "bool", hf = "bool", gguf = "bool", default = true }
flags = { type = "flags", hf = "flags", gguf = "flags", optional = true }
floats = { type = "floats", hf = "floats", gguf = "floats", optional = true }
"""
FIELDS = ["n_layers", "count", "float", "rope_factor", "text", "bool", "flags", "floats"]
TYPES = ["int", "count", "float", "str", "bool", "flags", "floats"]


def toml(value: Any) -> str:
    """A value as TOML has it on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("formulas")
    save_file({"w": np.zeros(1, np.float32)}, made / "model.safetensors")
    return made


def recipe_of(folder: Path, field: dict[str, Any]) -> Recipe:
    (folder / "x.toml").write_text(f"{HEAD}value = {toml(field)}\n")
    return load_recipe(str(folder / "x.toml"))


def resolved(folder: Path, recipe: Recipe, config: dict[str, Any]) -> dict[str, Any]:
    (folder / "config.json").write_text(json.dumps({"model_type": "x"} | config))
    return resolve_config(recipe, open_checkpoint(folder)).values


# --- what is not defined -------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("float", {"sqrt": "text"}, {}, "sqrt takes numbers"),
    ("float", {"sum": ["float", "bool"]}, {}, "sum takes numbers"),
    ("int", {"product": ["n_layers", "flags"]}, {}, "product takes numbers"),
    ("flags", {"not": "count"}, {}, "not takes flags"),
    ("int", {"period": 2}, {}, "gives flags"),
    ("float", {"by": "text", "a": {"not": "flags"}, "else": 1.0}, {}, "gives flags"),
    ("float", {"sqrt": []}, {}, "takes 1 operands"),
    ("float", {"sum": []}, {}, "takes some operands"),
    ("float", {"sum": [1e300]}, {}, "numbers are positive, and below"),
    ("float", {"rsqrt": "count"}, {}, "rsqrt of 0"),
    ("float", {"quotient": ["n_layers", "count"]}, {}, "quotient of 4, 0"),
    ("flags", {"period": "count"}, {}, "period of 0"),
    ("int", {"share": ["float", "float"]}, {"float": 1e300}, "share of"),
    ("int", {"product": ["n_layers"] * 9}, {"n_layers": 65535}, "is not below"),
    ("float", {"sum": ["float", "float"]}, {"float": 1.7e308}, "is not below"),
    ("float", {"longrope_attention": ["n_layers", "count"]}, {}, "longrope_attention of 4, 0"),
    ("float", {"longrope_attention": ["n_layers", "float"]}, {"float": 0.5}, "longrope_attention"),
]


@pytest.mark.parametrize(("kind", "formula", "config", "message"), REFUSED)
def test_no_result(
    folder: Path, kind: str, formula: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolved(folder, recipe_of(folder, {"type": kind, "default": formula}), config)


def test_nested_too_deeply(folder: Path) -> None:
    deep: Any = "n_layers"
    for _ in range(17):
        deep = {"sqrt": deep}
    with pytest.raises(ConfigurationError, match="at most 16 deep"):
        recipe_of(folder, {"type": "float", "default": deep})


def test_as_of_what_is_no_number(folder: Path) -> None:
    way = {"keys": ["x"], "as": {"times": "text"}}
    with pytest.raises(ConfigurationError, match="'text' is not a number"):
        recipe_of(folder, {"type": "int", "default": 1, "hf": way})


def test_as_of_null(folder: Path) -> None:
    way = {"keys": ["x"], "as": {"times": "float"}}
    recipe = recipe_of(folder, {"type": "int", "default": 1, "hf": way})
    with pytest.raises(ConfigurationError, match="relative to float, which is null"):
        resolved(folder, recipe, {"x": 2})


# --- anything ------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-2, 9), st.sampled_from([1 << 39, 1 << 62, 0.0, 0.5, 1e-300, 1e18, 1.7e308])
)
LITERALS = st.one_of(NUMBERS, st.booleans(), st.sampled_from(["a", ""]), st.just([True, False]))


def formulas(operands: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    listed = st.lists(operands, min_size=1, max_size=3)
    plain = st.builds(lambda op, values: {op: values}, st.sampled_from(sorted(FORMULAS)), listed)
    fitting = st.sampled_from(sorted(FORMULAS)).flatmap(
        lambda op: st.lists(
            operands, min_size=FORMULAS[op].count or 1, max_size=FORMULAS[op].count or 3
        ).map(lambda values: {op: values})
    )
    chosen = st.builds(
        lambda field, one, other: {"by": field, "a": one, "4": other, "else": one},
        st.sampled_from(FIELDS),
        operands,
        operands,
    )
    return st.one_of(fitting, plain, chosen)


EXPRESSIONS = st.recursive(st.one_of(st.sampled_from(FIELDS), NUMBERS), formulas, max_leaves=5)
VALUES = st.one_of(EXPRESSIONS, st.sampled_from(FIELDS).map(lambda name: {"field": name}), LITERALS)
AS = st.one_of(
    st.sampled_from(["reciprocal", "rsqrt"]),
    st.builds(
        lambda op, field: {op: field}, st.sampled_from(["times", "less"]), st.sampled_from(FIELDS)
    ),
)
WAYS = st.fixed_dictionaries(
    {"keys": st.just(["key"])},
    optional={"omit": VALUES, "default": VALUES, "null": VALUES, "as": AS},
)
SAID = st.fixed_dictionaries({"is": VALUES})
DEFINITIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES), "optional": st.booleans()},
    optional={
        "default": VALUES,
        "allowed": st.lists(VALUES, min_size=1, max_size=2),
        "hf": st.one_of(WAYS, SAID),
        "gguf": st.one_of(WAYS, SAID),
    },
)
LARGE = st.one_of(LITERALS, st.none(), st.just([1.5, 2.5]), st.just(10**400), st.just("4"))
CONFIGS = st.dictionaries(st.sampled_from([*FIELDS, "key"]), LARGE, max_size=4)


@given(field=DEFINITIONS, config=CONFIGS)
def test_anything(folder: Path, field: dict[str, Any], config: dict[str, Any]) -> None:
    try:
        recipe = recipe_of(folder, field)
        values = resolved(folder, recipe, config)
    except ConfigurationError:
        return
    for dialect in DIALECTS:
        try:
            written_keys(recipe, dialect, values)
            written_notes(recipe, dialect, values)
        except ConfigurationError:
            continue
