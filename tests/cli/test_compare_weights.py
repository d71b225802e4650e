"""``maxtool compare`` of checkpoints: the table, JSON, the limit, and what cannot be compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.cli.units import TIMES
from tests.runtime import tiny_artifact as tiny

LLAMA = Path(__file__).resolve().parents[1] / "data" / "tiny-llama3"
GGUF = LLAMA / "tiny-llama3-f32.gguf"
ROLE = "model.layers.{}.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tensors in bfloat16, one of them scaled, one with a number that is infinite."""
    import ml_dtypes

    tensors = {
        name: array.astype(ml_dtypes.bfloat16)
        for name, array in load_file(LLAMA / "model.safetensors").items()
    }
    tensors[ROLE.format(1)] = 2 * tensors[ROLE.format(1)]
    tensors["model.norm.weight"][3] = np.inf
    file = tmp_path_factory.mktemp("changed") / "model.safetensors"
    save_file(tensors, file)
    return file


def run(*words: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["compare", *map(str, words)], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result


def parsed(*words: object, code: int = 0) -> dict[str, Any]:
    content = json.loads(run(*words, "--json", code=code).stdout)
    assert content["schema"] == "maxtool.compare-weights/1"
    return content  # type: ignore[no-any-return]


def rows(result: Result) -> dict[str, list[str]]:
    lines = [re.split(r"  +", line.strip()) for line in result.stdout.splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_two_dialects() -> None:
    result = run(LLAMA, GGUF)
    table = rows(result)
    assert "tensors are paired by the recipe llama" in result.stderr
    assert table["tensor"] == ["type", "bits", "RMSE", "error", "largest", "cosine"]
    assert table[ROLE.format("{0..1}")][2:] == ["0", "0", "0", "1.000000"]
    assert table["all tensors"][1:] == ["0", "0", "0", "1.000000"]
    assert len(rows(run(LLAMA, GGUF, "--flat"))) > len(table) + 5
    (comparison,) = parsed(GGUF, LLAMA)["comparisons"]
    assert comparison["recipe"] == "llama"
    assert {"token_embd.weight"} <= {tensor["name"] for tensor in comparison["tensors"]}
    assert comparison["total"]["rmse"] == 0


def test_json_has_every_tensor(changed: Path) -> None:
    content = parsed(LLAMA, changed, GGUF)
    assert content["first"] == str(LLAMA)
    comparison, other = content["comparisons"]
    assert (comparison["recipe"], other["recipe"]) == (None, "llama")
    tensors = {tensor["name"]: tensor for tensor in comparison["tensors"]}
    original = load_file(LLAMA / "model.safetensors")
    assert tensors.keys() == original.keys()
    doubled = tensors[ROLE.format(1)]
    assert doubled["relative_error"] == pytest.approx(1, rel=0.01)
    assert doubled["cosine"] == pytest.approx(1, abs=1e-4)
    assert doubled["first"] == {"type": "F32", "bits_per_weight": 32.0}
    assert doubled["second"] == {"type": "BF16", "bits_per_weight": 16.0}
    norm = tensors["model.norm.weight"]
    assert (norm["rmse"], norm["largest"], norm["at"]) == ("inf", "inf", [3])
    assert comparison["total"]["elements"] == sum(array.size for array in original.values())
    assert comparison["total"]["first"] == {"bits_per_weight": 32.0}
    assert comparison["total"]["second"] == {"bits_per_weight": 16.0}


def test_lines_in_the_order_of_the_error(changed: Path) -> None:
    names = [*rows(run(LLAMA, changed, "--flat", "--sort", "error"))]
    first = names.index("tensor") + 1
    assert names[first : first + 2] == ["model.norm.weight", ROLE.format(1)]
    assert "error, rmse, largest, size" in run(LLAMA, changed, "--sort", "x", code=2).stderr


def test_several_candidates_have_a_table_of_totals(changed: Path) -> None:
    totals = rows(run(LLAMA, changed, GGUF))
    assert totals[str(changed)][0] == "16.00"
    assert totals[str(GGUF)][0] == "32.00"


def test_the_limit(changed: Path) -> None:
    same = ("--filter", "*layers.0*")
    run(LLAMA, changed, *same, "--max-error", "0.01")
    run(LLAMA, changed, *same, "--max-error", "0.0001", code=1)
    run(LLAMA, changed, "--max-error", "1e9", code=1)  # one is not finite
    run(LLAMA, GGUF, "--max-error", "0")


def test_what_is_in_one_only_or_of_another_shape(tmp_path: Path) -> None:
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    one = np.ones((2, 3), np.float32)
    save_file({"same": one, "a": one, "x\u202e</script>": one, "w": one}, files[0])
    save_file({"same": one, "b": one, "w": one.T.copy()}, files[1])
    text = run(*files).stdout
    assert "only in the first: x\\u202e</script>\n" in text
    assert "only in the second: b\n" in text
    assert f"of another shape: w 2{TIMES}3, 3{TIMES}2\n" in text
    (comparison,) = parsed(*files, "--max-error", "9", code=1)["comparisons"]
    assert comparison["only_first"] == ["a", "x\u202e</script>"]
    assert comparison["misshapen"] == [{"name": "w", "first": [2, 3], "second": [3, 2]}]


def test_names_that_no_recipe_pairs(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.ones(3))
    np.savez(tmp_path / "b.npz", v=np.ones(3))
    error = run(tmp_path / "a.npz", tmp_path / "b.npz", code=4).stderr
    assert "no tensor has the same name in both" in error
    assert error.count("no recipe reads npz files") == 2
    run(LLAMA, GGUF, "--filter", "nothing", code=1)


@pytest.mark.long
def test_checkpoints_and_compiled_models_do_not_mix(tmp_path: Path) -> None:
    tiny.make(tmp_path / "compiled", tiny.compile_module(tmp_path), [7] * 40, 1)
    error = run(LLAMA, tmp_path / "compiled", code=2).stderr
    assert "is a compiled model and" in error
    assert "give what the other was compiled from" in " ".join(error.split())
    compiled = tmp_path / "compiled"
    assert "for checkpoints" in run(compiled, compiled, "--sort", "error", code=2).stderr
    assert "--text: for compiled models" in run(LLAMA, GGUF, "--text", LLAMA, code=2).stderr
    run(tmp_path / "missing", GGUF, code=3)
