"""Formulas and codecs on whatever a recipe and a configuration say: a value or an error of ours."""

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
from maxtool.recipe.codecs import CODECS
from maxtool.recipe.expressions import FORMULAS
from maxtool.recipe.schema import DIALECTS
from maxtool.recipe.write_config import written_keys, written_notes
from maxtool.weights import open_checkpoint

HEAD = """
schema = 2
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
text = { type = "str", hf = "text", gguf = "text", default = "a" }
bool = { type = "bool", hf = "bool", gguf = "bool", default = true }
flags = { type = "flags", hf = "flags", gguf = "flags", optional = true }
floats = { type = "floats", hf = "floats", gguf = "floats", optional = true }
# What codecs need, by the names they have for it.
n_heads = { type = "int", hf = "n_heads", gguf = "n_heads", default = 2 }
hidden_size = { type = "int", hf = "hidden_size", gguf = "hidden_size", default = 8 }
head_dim = { type = "int", hf = "head_dim", gguf = "head_dim", optional = true }
context_length = { type = "int", hf = "context_length", gguf = "context_length", default = 64 }
position_offset = { type = "count", hf = "position_offset", gguf = "position_offset", default = 0 }
pad_token_id = { type = "count", hf = "pad_token_id", gguf = "pad_token_id", default = 1 }
rope_original_context = { type = "int", hf = "original", gguf = "original", optional = true }
rope_factor = { type = "float", hf = "rope_factor", gguf = "rope_factor", optional = true }
sliding_window = { type = "int", hf = "window", gguf = "window", optional = true }
rope_layers = { type = "flags", hf = "rope_layers", gguf = "rope_layers", optional = true }
"""
FIELDS = ["n_layers", "count", "float", "rope_factor", "text", "bool", "flags", "floats"]
NEEDED = [
    "n_heads",
    "hidden_size",
    "head_dim",
    "context_length",
    "original",
    "window",
    "rope_layers",
]
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
    ("float", {"product": ["float", "bool"]}, {}, "product takes numbers"),
    ("int", {"product": ["n_layers", "flags"]}, {}, "product takes numbers"),
    ("float", {"sqrt": []}, {}, "takes 1 operands"),
    ("float", {"product": ["float"]}, {}, "takes 2 operands"),
    ("float", {"product": ["float", 1e300]}, {}, "numbers are positive, and below"),
    ("float", {"sqrt": {"sqrt": "float"}}, {}, "neither a field nor a number"),
    ("float", {"rsqrt": "count"}, {}, "rsqrt of 0"),
    ("float", {"quotient": ["n_layers", "count"]}, {}, "quotient of 4, 0"),
    ("float", {"product": ["float", "float"]}, {"float": 1.7e308}, "is not below"),
]


@pytest.mark.parametrize(("kind", "formula", "config", "message"), REFUSED)
def test_no_result(
    folder: Path, kind: str, formula: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolved(folder, recipe_of(folder, {"type": kind, "default": formula}), config)


def test_a_codec_needs_numbers(folder: Path) -> None:
    way = {"keys": ["x"], "codec": "share_of_head"}
    text = HEAD.replace('head_dim = { type = "int"', 'head_dim = { type = "str"')
    (folder / "x.toml").write_text(f"{text}value = {toml({'type': 'int', 'hf': way})}\n")
    with pytest.raises(ConfigurationError, match="share_of_head needs a number as 'head_dim'"):
        load_recipe(str(folder / "x.toml"))


def test_a_codec_needs_a_text(folder: Path) -> None:
    way = {"keys": ["new", "heads", "multi"], "codec": "falcon_kv_heads"}
    with pytest.raises(
        ConfigurationError, match="falcon_kv_heads needs a text, flags or sizes as 'block'"
    ):
        recipe_of(folder, {"type": "int", "hf": way})


def test_a_codec_of_null(folder: Path) -> None:
    way = {"keys": ["x"], "codec": "share_of_head"}
    recipe = recipe_of(folder, {"type": "int", "default": 1, "hf": way})
    with pytest.raises(ConfigurationError, match="share_of_head needs head_dim, which is null"):
        resolved(folder, recipe, {"x": 2})


# --- anything ------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-2, 9), st.sampled_from([1 << 39, 1 << 62, 0.0, 0.5, 1e-300, 1e18, 1.7e308])
)
LITERALS = st.one_of(NUMBERS, st.booleans(), st.sampled_from(["a", ""]), st.just([True, False]))


OPERANDS = st.one_of(st.sampled_from(FIELDS), NUMBERS)
PLAIN = st.builds(
    lambda op, values: {op: values},
    st.sampled_from(sorted(FORMULAS)),
    st.lists(OPERANDS, min_size=1, max_size=3),
)
FITTING = st.sampled_from(sorted(FORMULAS)).flatmap(
    lambda op: st.lists(OPERANDS, min_size=FORMULAS[op][0], max_size=FORMULAS[op][0]).map(
        lambda values: {op: values}
    )
)
FIELD = st.sampled_from(FIELDS).map(lambda name: {"field": name})
VALUES = st.one_of(PLAIN, FITTING, FIELD, LITERALS)
KEYS = ["key", "second", "third"]
WAYS = st.fixed_dictionaries(
    {"keys": st.just(["key"])}, optional={"omit": VALUES, "default": VALUES}
)
CODED = st.sampled_from(sorted(CODECS)).flatmap(
    lambda name: st.fixed_dictionaries(
        {
            "codec": st.just(name),
            "keys": st.sampled_from([KEYS[: len(CODECS[name].keys)], []]),
        },
        optional={"omit": VALUES, "default": VALUES},
    )
)
DEFINITIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES), "optional": st.booleans()},
    optional={
        "default": VALUES,
        "allowed": st.lists(VALUES, min_size=1, max_size=2),
        "hf": st.one_of(WAYS, CODED),
        "gguf": st.one_of(WAYS, CODED),
    },
)
LARGE = st.one_of(LITERALS, st.none(), st.just([1.5, 2.5]), st.just(10**400), st.just("4"))
CONFIGS = st.dictionaries(st.sampled_from([*FIELDS, *NEEDED, *KEYS]), LARGE, max_size=4)


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
