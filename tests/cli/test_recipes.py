"""``maxtool recipes list|show|check|new``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.recipe import recipe_names

DATA = Path(__file__).resolve().parents[1] / "data"


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["recipes", *args])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A checkpoint with a tensor too many, one too few and one of another shape."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes((DATA / "tiny-llama" / "config.json").read_bytes())
    tensors = load_file(DATA / "tiny-llama" / "model.safetensors")
    del tensors["model.norm.weight"]
    tensors["extra\x1b[31m"] = np.zeros(3, np.float32)
    tensors["lm_head.weight"] = np.zeros((2, 2), np.float32)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_list() -> None:
    lines = run("list").stdout.split("\n")
    assert [line.split()[0] for line in lines if line][1:] == recipe_names()
    roberta = next(line for line in lines if line.startswith("roberta"))
    assert roberta.strip().endswith("camembert      bert"), "the kind of model alone"
    content = json.loads(run("list", "--json").stdout)
    assert content["schema"] == "maxtool.recipes-list/1"
    by_name = {recipe["name"]: recipe for recipe in content["recipes"]}
    required = {name: by_name[name]["match"]["gguf"]["requires"] for name in by_name}
    assert required["mistral"] == ["llama.attention.sliding_window"]
    assert required["distilbert"] == [{"absent": "token_types.weight"}]


@pytest.mark.sampled
@pytest.mark.parametrize("name", recipe_names())
def test_show(name: str) -> None:
    shown = run("show", name).stdout
    content = json.loads(run("show", name, "--json").stdout)
    if content["weights"]["gguf"]:  # which has no form of models of images
        assert content["weights"]["hf"].keys() == content["weights"]["gguf"].keys()
    for rules in content["weights"]["hf"].values():
        assert all(source in shown for rule in rules for source in rule["from"])


def test_show_llama() -> None:
    shown = run("show", "llama").stdout
    assert "num_hidden_layers" in shown
    assert "blk.{layer}.attn_q.weight, rope_pairs_to_halves" in shown
    content = json.loads(run("show", "llama", "--json").stdout)
    assert content["weights"]["hf"]["norm.weight"][0]["from"] == ["model.norm.weight"]
    assert content["config"]["n_heads"]["gguf"] == ["llama.attention.head_count"]


def test_show_unknown() -> None:
    assert "did you mean 'llama'" in run("show", "lama", code=2).stderr


def test_check_shows_the_whole_mapping() -> None:
    result = run("check", "llama", str(DATA / "tiny-llama"))
    lines = [line.split() for line in result.stdout.splitlines() if line]
    tensors = load_file(DATA / "tiny-llama" / "model.safetensors")
    assert {line[1] for line in lines[1:]} == set(tensors)
    assert "everything fits" in result.stderr
    content = json.loads(run("check", "llama", str(DATA / "tiny-llama"), "--json").stdout)
    for binding in content["parameters"].values():
        (source,) = binding["from"]
        assert tuple(binding["shape"]) == tensors[source].shape


def test_check_lists_all_that_does_not_fit(damaged: Path) -> None:
    result = run("check", "llama", str(damaged), code=4)
    assert "missing: model.norm.weight [40] (for norm.weight)" in result.stderr
    assert "not used: extra\\x1b[31m [3]" in result.stderr
    assert "lm_head.weight: needs [97, 40], found [2, 2]" in result.stderr
    assert "\x1b" not in result.output
    content = json.loads(run("check", "llama", str(damaged), "--json", code=4).stdout)
    counts = [len(content[kind]) for kind in ("missing", "misshapen", "unused", "refused")]
    assert counts == [1, 1, 1, 0]


def test_check_with_a_recipe_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    rule = '[weights.hf]\n"norm.weight" = "other.norm.weight"\n'
    file.write_text(f'schema = 2\nname = "mine"\nextends = "llama"\n{rule}')
    result = run("check", str(file), str(DATA / "tiny-llama"), code=4)
    assert "missing: other.norm.weight" in result.stderr
    assert "not used: model.norm.weight" in result.stderr


def test_the_first_line_of_a_listing_is_its_header() -> None:
    printed = CliRunner().invoke(app, ["recipes", "list"]).stdout
    assert printed.split()[0] == "Recipe"
    assert not printed.startswith("\n")


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """A Llama that says it is something else."""
    folder = shutil.copytree(DATA / "tiny-llama", tmp_path / "unknown")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "Camp Fire"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.long
def test_new(unknown: Path, tmp_path: Path) -> None:
    shown = run("new", str(unknown))
    file = tmp_path / "camp_fire.toml"
    assert "everything fits" in shown.stderr
    assert "look at it: maxtool recipes check camp_fire.toml" in shown.stderr
    assert run("new", str(unknown), "-o", str(file)).stdout == f"wrote {file}\n"
    assert file.read_text() == shown.stdout
    assert "everything fits" in run("check", str(file), str(unknown)).stderr
    assert "the output exists" in run("new", str(unknown), "-o", str(file), code=2).stderr
    content = json.loads(run("new", str(unknown), "-o", str(file), "--force", "--json").stdout)
    assert content["schema"] == "maxtool.recipes-new/1"
    assert (content["base"], content["kind"], content["name"]) == (
        "llama",
        "Camp Fire",
        "camp_fire",
    )
    assert (content["recipe"], content["output"]) == (file.read_text(), str(file))
    assert (content["open"], content["guessed"]) == ([], {"tensors": {}, "keys": {}})
    assert content["as_near"]["mistral"] == {"sliding_window": 4096}


@pytest.mark.long
def test_new_of_what_is_not_explained(unknown: Path, tmp_path: Path) -> None:
    config = json.loads((unknown / "config.json").read_text()) | {"gain": 0.5}
    (unknown / "config.json").write_text(json.dumps(config))
    shown = run("new", str(unknown), code=4)
    assert "# OPEN: gain = 0.5 is not explained\n" in shown.stdout
    assert "1 line marked OPEN" in shown.stderr
    content = json.loads(run("new", str(unknown), "--json", code=4).stdout)
    assert content["open"] == ["gain = 0.5 is not explained"]
    assert run("new", str(unknown), "-o", str(tmp_path / "x.txt"), code=2).stdout == ""
    assert not (tmp_path / "x.txt").exists()


def test_new_of_what_is_known() -> None:
    refused = run("new", str(DATA / "tiny-llama"), code=2)
    assert "the recipe llama recognises this model" in refused.stderr
