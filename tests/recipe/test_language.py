"""The recipe language's words for a field, in both directions and both dialects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from maxtool.conversion.gguf_metadata import typed
from maxtool.conversion.hf_files import nested
from maxtool.errors import ConfigurationError
from maxtool.recipe import (
    Recipe,
    computed_tensors,
    load_recipe,
    resolve_config,
    written_keys,
)
from maxtool.weights import open_checkpoint

RECIPE = (Path(__file__).resolve().parents[1] / "data" / "recipes" / "speech.toml").read_text()

VALUES: dict[str, Any] = {
    "norm": "layer",
    "n_layers": 6,
    "hidden_size": 64,
    "head_dim": 16,
    "inner": 256,
    "embed_scale": 8.0,
    "rotary_dim": 16,
    "logits_scale": 1.0,
    "sliding_window": None,
    "sliding": None,
    "every": (True, True, False) * 2,
    "rope_layers": None,
    "experts": None,
    "theta": 1e4,
    "scaling": "none",
    "factors": None,
    "attention_scale": 0.25,
    "block": "parallel_shared",
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    file = tmp_path_factory.mktemp("recipe") / "speech.toml"
    file.write_text(RECIPE)
    return load_recipe(str(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("speech")


def from_hf(recipe: Recipe, folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "speech", **config}))
    return resolve_config(recipe, open_checkpoint(folder)).values


def from_gguf(
    recipe: Recipe, folder: Path, keys: dict[str, Any], tensors: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Read it back through a file that the gguf package writes."""
    writer = gguf.GGUFWriter(folder / "x.gguf", "speech")
    add: dict[type, Callable[[str, Any], None]] = {
        str: writer.add_string,
        bool: writer.add_bool,
        np.uint32: lambda key, value: writer.add_uint32(key, int(value)),
        np.float32: lambda key, value: writer.add_float32(key, float(value)),
        np.ndarray: lambda key, value: writer.add_array(key, value.tolist()),
    }
    for key, value in keys.items():
        if key != "general.architecture":
            add[type(typed(value))](key, typed(value))
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return resolve_config(recipe, open_checkpoint(folder / "x.gguf")).values


S, F = "sliding_attention", "full_attention"
CONFIG = {"layers": 6, "hidden": 64}
KEYS = {"speech.layers": 6, "speech.hidden": 64}


def test_what_is_not_said_follows(recipe: Recipe, folder: Path) -> None:
    assert from_hf(recipe, folder, CONFIG) == VALUES
    # What GGUF implies of this architecture: no keys at all are three full layers of four.
    x = {"x": np.zeros(1, np.float32)}
    assert from_gguf(recipe, folder, KEYS, x) == VALUES


TOLD = """
[config.told]
type = "flags"
optional = true
gguf = { keys = [{ present = "blk.{layer}.gate" }] }
"""


def test_flags_say_which_layers_have_a_tensor(tmp_path: Path) -> None:
    (tmp_path / "told.toml").write_text(RECIPE + TOLD)
    recipe = load_recipe(str(tmp_path / "told.toml"))
    for layers in ((1, 4), (), range(6)):
        tensors = {f"blk.{layer}.gate": np.zeros(1, np.float32) for layer in layers}
        found = from_gguf(recipe, tmp_path, KEYS, {"x": np.zeros(1, np.float32), **tensors})
        expected = tuple(layer in layers for layer in range(6))
        assert found["told"] == (None if all(expected) else expected)
        assert written_keys(recipe, "gguf", found) == written_keys(
            recipe, "gguf", VALUES | {"told": None}
        )


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"head_dim": 6}, "head_dim", 6),
        ({"partial": 0.75}, "rotary_dim", 12),
        ({"divisor": 8}, "logits_scale", 0.125),
        ({"scalar": 64}, "attention_scale", 0.125),
        ({"window": 7}, "sliding_window", None),
        ({"window": 7, "use_window": True}, "sliding_window", 7),
        ({"use_window": True}, "sliding_window", 4096),
        ({"use_window": True}, "sliding", (False, False, True, True, True, True)),
        ({"use_window": True, "first": 5}, "sliding", (False,) * 5 + (True,)),
        ({"use_window": True, "first": 0}, "sliding", None),
        ({"use_window": False, "layer_types": [S] * 6}, "sliding", None),
        (
            {"use_window": True, "layer_types": [S, F] * 3},
            "sliding",
            (True, False) * 3,
        ),
        (
            {"use_window": True, "layer_types": [S] * 6, "first": 3},
            "sliding",
            None,
        ),
        ({"ropes": [1, 1, 0, 1, 1, 0]}, "rope_layers", (True, True, False) * 2),
        ({"ropes": [1] * 6}, "rope_layers", None),
        ({"every": 2}, "every", (True, False) * 3),
        ({"every": 2, "flags": [0, 1, 1, 0, 0, 0]}, "every", (False, True, True) + (False,) * 3),
        ({"dense": [0, 5]}, "experts", (False, True, True, True, True, False)),
        ({"dense": [3], "step": 2}, "experts", (False, True, False, False, False, True)),
        ({"dense": [], "step": 1}, "experts", None),
        ({"rope_scaling": {"theta": 3, "type": "meta"}}, "scaling", "llama3"),
        ({"rope_parameters": {"theta": 3}, "theta": 3.0}, "theta", 3.0),
        ({"rope_scaling": {"factors": [1, 2.5]}}, "factors", (1.0, 2.5)),
        ({"parallel": False}, "block", "pre"),
        ({"new": True}, "block", "parallel"),
        ({"new": True, "norms": 1}, "block", "parallel_shared"),
    ],
)
def test_huggingface(
    recipe: Recipe, folder: Path, config: dict[str, Any], field: str, value: object
) -> None:
    assert from_hf(recipe, folder, CONFIG | config)[field] == value


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"use_window": True, "layer_types": ["sliding_attention"]},
            "one flag for each of 6 layers, but of 1",
        ),
        (
            {"use_window": True, "layer_types": [S] * 5 + ["chunked"]},
            "is not a list of flags (sliding)",
        ),
        ({"use_window": True, "layer_types": "slide"}, "is not a list of flags"),
        ({"layers": 10**9, "ropes": [1]}, "1000000000 layers are more than"),
        ({"dense": "0"}, "is not a list of numbers of layers"),
        ({"step": 0}, "step = 0 is not a positive integer (experts)"),
        ({"dense": [0], "step": True}, "step = True is not a positive integer (experts)"),
        ({"every": 0}, "every = 0 is not a list of flags"),
        ({"new": 1}, "new = 1 is not true or false (block)"),
        ({"divisor": 0}, "divisor = 0 is not a positive number"),
        ({"divisor": "x"}, "is not a positive number"),
        ({"scalar": 1e400}, "is not a positive number"),
        ({"partial": 1e-9}, "is not a positive integer"),
        ({"partial": 1e300, "head_dim": 1 << 39}, "partial = inf is not a positive integer"),
        ({"scalar": 10**400}, "is not a positive number"),
        ({"rope_scaling": {"factors": []}}, "is not a list of positive numbers"),
        ({"rope_scaling": {"factors": [1, -1]}}, "is not a list of positive numbers"),
        ({"layers": None}, "layers is missing (n_layers)"),
    ],
)
def test_huggingface_problems(
    recipe: Recipe, folder: Path, config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_hf(recipe, folder, CONFIG | config)
    assert problem in str(caught.value)


def _repeated(flags: tuple[bool, ...] | None) -> tuple[bool, ...] | None:
    return flags and (flags * 6)[:6]


FLAGS = st.lists(st.booleans(), min_size=6, max_size=6).map(
    lambda flags: None if all(flags) else tuple(flags)
)
OPTIONS = {
    "head_dim": st.integers(2, 200),
    "inner": st.integers(1, 1000),
    "sliding_window": st.none() | st.integers(1, 9000),
    "rope_layers": FLAGS,
    "every": st.sampled_from([None, *((True,) * n + (False,) for n in range(3))]).map(_repeated),
    "experts": FLAGS,
    "theta": st.sampled_from([1.0, 1e4, 5e5, 123456.0]),
}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    made = VALUES | {name: draw(strategy) for name, strategy in OPTIONS.items()}
    made["rotary_dim"] = draw(st.integers(1, made["head_dim"]))
    made["logits_scale"] = 1 / draw(st.sampled_from([1.0, 8.0, 13.0, 0.3]))
    return made


@given(
    made=configurations(),
    sliding=FLAGS,
    scalar=st.integers(1, 10**6),
    block=st.sampled_from(["pre", "parallel_shared", "parallel"]),
    factors=st.none() | st.lists(st.floats(0.5, 99), min_size=1, max_size=5).map(tuple),
    scaling=st.sampled_from(["none", "llama3", "longrope"]),
)
def test_huggingface_there_and_back(
    recipe: Recipe, folder: Path, made: dict[str, Any], sliding: object, scalar: int, **more: object
) -> None:
    made |= more | {"attention_scale": scalar**-0.5}
    made["sliding"] = sliding if made["sliding_window"] else None
    keys = nested(written_keys(recipe, "hf", made))
    assert from_hf(recipe, folder, keys) == made
    assert keys["scalar"] == scalar and type(keys["scalar"]) is int


@given(
    made=configurations(),
    sliding=FLAGS,
    factors=st.lists(st.floats(0.5, 99, width=32), min_size=1, max_size=5).map(tuple),
    scaling=st.sampled_from(["none", "longrope"]),
    parallel=st.booleans(),
)
def test_gguf_there_and_back(
    recipe: Recipe,
    folder: Path,
    made: dict[str, Any],
    sliding: object,
    factors: tuple[float, ...],
    scaling: str,
    parallel: bool,
) -> None:
    made["sliding"] = sliding if made["sliding_window"] else None
    made["attention_scale"] = made["head_dim"] ** -0.5
    made |= {"scaling": scaling, "block": "parallel" if parallel else "parallel_shared"}
    made["factors"] = factors if scaling == "longrope" else None
    tensors: dict[str, Any] = {"second.weight": np.ones(1, np.float32)} if parallel else {}
    tensors |= computed_tensors(recipe.computed["gguf"], made)
    tensors |= {"x": np.zeros(1, np.float32)}
    found = from_gguf(recipe, folder, written_keys(recipe, "gguf", made), tensors)
    for field in ("logits_scale", "factors"):  # GGUF keeps float32
        assert np.array_equal(np.float32(found.pop(field) or 0), np.float32(made.pop(field) or 0))
    assert found == made


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"norm": "rms"}, "norm = 'rms' has no spelling in gguf"),
        ({"embed_scale": 2.0}, "embed_scale = 2.0 has no spelling in gguf"),
        ({"attention_scale": 0.3}, "attention_scale = 0.3 has no spelling"),
        ({"logits_scale": 1e-320}, "logits_scale = 1e-320 has no spelling"),
        ({"block": "pre"}, "block = 'pre' has no spelling"),
        ({"scaling": "llama3"}, "scaling = 'llama3' has no spelling"),
        ({"factors": (1.0,)}, "factors = (1.0,) has no spelling"),
        ({"every": (True, True, True, False, False, True)}, "every = (True"),
    ],
)
def test_what_gguf_cannot_say(recipe: Recipe, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        written_keys(recipe, "gguf", VALUES | changes)
    assert problem in str(caught.value)


def test_two_fields_of_one_key_must_agree(tmp_path: Path) -> None:
    text = RECIPE.replace("[tables]", "[tables]\n").replace(
        'norm = "layer"',
        'norm = "layer"\nq = { type = "bool", hf = "bias", default = false }\n'
        'o = { type = "bool", hf = "bias", default = false }',
    )
    (tmp_path / "both.toml").write_text(text)
    recipe = load_recipe(str(tmp_path / "both.toml"))
    with pytest.raises(ConfigurationError, match="another field needs True"):
        written_keys(recipe, "hf", VALUES | {"q": True, "o": False})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[tables]", '[aside.hf]\nkeys = ["x"]\n[tables]', "aside.hf: needs a text, found None"),
        ("[tables]", '[aside.hf]\nnote = "x"\nnames = []\n[tables]', "unknown key 'names'"),
        ("match = { hf = {", 'match = { hf = { requires = [{ rows = "x" }],', "takes keys, and"),
        ("match = { hf = {", "match = { hf = { requires = 3,", "requires: 3 is neither a key"),
        ("schema = 2", "schema = 1\nsection = 3", "section: needs a text, found 3"),
        ('norm = "layer"', "norm = [1]", "config.norm: needs a table or a value"),
        ("{ sqrt =", "{ cube =", "a default is a value or one of field, quotient"),
        ("{ product = [4,", "{ product = [true,", "neither a field nor a number"),
        ('"hidden_size", 4]', '"hidden_size", 0]', "0 is not an operand"),
        ('"rsqrt", keys', '"square", keys', "codec 'square' is not one of "),
        ('["dense", "step"]', '["dense"]', "the codec sparse_layers takes 2 keys, found 1"),
        ('["scalar"]', '[{ length = "x" }]', "the codec rsqrt takes keys and rows of tensors only"),
        ("head_dim =", "head_size =", "config.rotary_dim: needs the unknown field 'head_dim'"),
        ('"qwen2_windows"', '"smollm3_windows"', "needs 'rope_layers', which comes later"),
        ('"int", hf = { codec = "share', '"str", hf = { codec = "share', "for int and count and"),
        ('"int", hf = "head_dim"', '"str", hf = "head_dim"', "needs a number as 'head_dim'"),
        ("default = 1e4", 'default = "x"', "'x' is not a positive number"),
        ('field = "factors", when', "when", "and nothing else, take a field"),
        ('{ field = "factors"', '{ codec = "number_by_layer", field = "factors"', "with {layer}"),
        ('{ field = "factors"', '{ codec = "meta"', "codec 'meta' is not one of floats, number"),
        ('field = "factors"', 'field = "factor"', "'factor' is not a field of [config]"),
        ("{ keys = [{ present", "{ kyes = [{ present", "unknown key 'kyes'"),
        ("{ keys = [{ present", "{ kyes = [{ present", "needs keys, a codec, or why"),
        ('hf = "head_dim"', "hf = []", "needs keys, a codec, or why the value is lost"),
        (
            'keys = ["{rope}.theta"]',
            'keys = ["{rope}.theta", "theta"]',
            "theta is in keys and in also",
        ),
    ],
)
def test_problems(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in RECIPE
    (tmp_path / "bad.toml").write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigurationError) as caught:
        load_recipe(str(tmp_path / "bad.toml"))
    assert problem in str(caught.value)
