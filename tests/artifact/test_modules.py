"""Modules of a user, compiled from ``FILE.py:NAME`` and a checkpoint, and run by the loader."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.runtime import loader
from maxtool.weights import open_checkpoint

MODULES = Path(__file__).parent / "modules"
GRAPH, EAGER = MODULES / "graph_style.py", MODULES / "eager_style.py"
RANDOM = np.random.default_rng(7)
INPUT = "x=float32[batch,16]"


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(np.float32)


MLP = {
    "up.weight": normal(24, 16),
    "up.bias": normal(24),
    "down.weight": normal(3, 24),
    "down.bias": normal(3),
}


def mlp(x: np.ndarray[Any, Any], weights: dict[str, np.ndarray[Any, Any]] = MLP) -> Any:
    up = x @ weights["up.weight"].T + weights["up.bias"]
    return up / (1 + np.exp(-up)) @ weights["down.weight"].T + weights["down.bias"]


def compiling(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compile", *map(str, arguments)])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save_file(MLP, tmp_path / "mlp.safetensors")
    return tmp_path / "mlp.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two entries, of which one has two symbolic sizes and a scalar."""
    home = tmp_path_factory.mktemp("mlp")
    save_file(MLP, home / "mlp.safetensors")
    others = ("--input", "compare.other=float32[rows,16]", "--input", "compare.scale=float32[]")
    entries = ("--entry", "forward", "--entry", "compare=compare", "--entry", "third")
    done = compiling(
        f"{GRAPH}:MLP", "--weights", home / "mlp.safetensors", "--input", INPUT, *others, *entries,
        "-o", home / "out", "--check",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (
        "checked with 13 calls against the graph (the compilation, not the reading): relative error"
        in " ".join(done.stdout.split())
    )
    assert "printed by the file" not in done.stdout
    return home / "out"


def test_a_module_runs_as_it_is_written(folder: Path) -> None:
    model, x = loader.load(folder), normal(5, 16)
    np.testing.assert_allclose(model(x=x)["output"], mlp(x), rtol=1e-4, atol=1e-4)
    assert model(x=[[0.5] * 16])["output"].shape == (1, 3)


def test_a_second_entry_has_inputs_of_its_own(folder: Path) -> None:
    model, x, other = loader.load(folder), normal(4, 16), normal(7, 16)
    results = model.run("compare", {"x": x, "other": other, "scale": np.float32(2)})
    left, right = (one @ MLP["up.weight"].T + MLP["up.bias"] for one in (x, other))
    np.testing.assert_allclose(results["near"], 2 * left @ right.T, rtol=1e-4, atol=1e-3)
    assert (results["best"][:, 0] == (left @ right.T).argmax(1)).all()


def test_the_manifest_says_what_a_function_takes(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["name"], manifest["recipe"], manifest["task"]) == ("MLP", None, None)
    assert manifest["build"]["sources"].keys() == {
        "beside.py",
        "graph_style.py",
        "mlp.safetensors",
    }
    assert manifest["check"]["calls"] == 13
    assert manifest["entries"]["third"]["least"] == {"batch": 2}
    assert str(folder.parent) not in json.dumps(manifest)


WRONG_CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "missing": ("forward", {}, "missing x"),
    "unknown": ("forward", {"y": normal(1, 16)}, "missing x, unknown y"),
    "width": ("forward", {"x": normal(2, 15)}, r"shape \(2, 15\); the model takes x float32\["),
    "rank": ("forward", {"x": normal(16)}, "the model takes x float32"),
    "empty": ("forward", {"x": normal(0, 16)}, "the model takes x float32"),
    "type": ("forward", {"x": np.zeros((1, 16), np.float64)}, "x is float64; the model takes"),
    "whole numbers": ("forward", {"x": np.zeros((1, 16), np.int64)}, "x is int64"),
    "too few": ("third", {"x": normal(1, 16)}, "batch is 1; the model takes at least 2"),
    "entry": ("fourth", {"x": normal(1, 16)}, "no entry 'fourth'"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_call_that_does_not_fit(folder: Path, case: str) -> None:
    entry, arrays, says = WRONG_CALLS[case]
    with pytest.raises(loader.RunError, match=says):
        loader.load(folder).run(entry, arrays)


def program(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_arrays_go_in_and_come_out_of_the_program(folder: Path, tmp_path: Path) -> None:
    x = normal(3, 16)
    np.savez(tmp_path / "x.npz", x=x)
    done = program(folder, "--inputs", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    assert done.stdout == "output float32[3, 3]\n"
    with np.load(tmp_path / "y.npz") as arrays:
        np.testing.assert_allclose(arrays["output"], mlp(x), rtol=1e-4, atol=1e-4)


def test_a_function_of_arrays_writes_no_text(folder: Path) -> None:
    done = program(folder, "--prompt", "Once")
    assert (done.returncode, done.stdout) == (4, "")
    assert "takes arrays, and no text" in done.stderr
    chat = program(folder, "--chat", "--prompt", "Once")
    assert (chat.returncode, chat.stdout, chat.stderr) == (4, "", done.stderr)


def test_an_array_that_does_not_fit_is_told_of_with_its_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    for array in np.zeros((1, 16)), np.zeros((1, 15), np.float32):
        np.savez(path, x=array)
        done = program(folder, "--inputs", path)
        assert done.returncode == 3
        assert f"file {path}, tensor x" in done.stderr


def test_the_weights_of_a_module_are_inspected(folder: Path) -> None:
    for name, values in MLP.items():
        np.testing.assert_array_equal(open_checkpoint(folder).read(name).data, values)


# Eager style, tied and quantized weights


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_eager_module_in_another_type(tmp_path: Path, dtype: str) -> None:
    matrix = normal(8, 8).astype(np.float64)
    save_file({"value.weight": matrix, "value.bias": normal(8)}, tmp_path / "tied.safetensors")
    inputs = ("--weights", tmp_path / "tied.safetensors", "-o", tmp_path / "out", "--check")
    done = compiling(f"{EAGER}:tied", *inputs, "--dtype", dtype)
    assert done.exit_code == 0, done.output
    stored = {spec.name: spec.dtype for spec in loader.Manifest(tmp_path / "out").weights}
    assert stored == {"value.weight": dtype, "value.bias": "float32"}


def test_the_help_says_what_is_executed() -> None:
    text = " ".join(compiling("--help").stdout.split())
    assert "FILE.py:NAME: that file is executed." in text
    assert "It is never executed." in text


def test_an_eager_module_says_its_own_types(tmp_path: Path) -> None:
    weights = {"value.weight": normal(8, 8), "value.bias": normal(8), "gate.weight": normal(8, 8)}
    save_file(weights, tmp_path / "gate.safetensors")
    out = tmp_path / "out"
    done = compiling(
        f"{EAGER}:gate", "--weights", tmp_path / "gate.safetensors", "-o", out, "--check"
    )
    assert done.exit_code == 0, done.output
    x = normal(4, 8)
    gate = 1 / (1 + np.exp(-(x @ weights["gate.weight"].T)))
    expected = (x @ weights["value.weight"].T + weights["value.bias"]) * gate
    np.testing.assert_allclose(loader.load(out)(x=x)["output"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("names", [("value",), ("gate",), ("value", "gate")])
def test_tied_tensors_are_stored_once(tmp_path: Path, names: tuple[str, ...]) -> None:
    matrix = normal(8, 8)
    weights = {f"{name}.weight": matrix for name in names} | {"value.bias": normal(8)}
    save_file(weights, tmp_path / "tied.safetensors")
    out = tmp_path / "out"
    done = compiling(f"{EAGER}:tied", "--weights", tmp_path / "tied.safetensors", "-o", out)
    assert done.exit_code == 0, done.output
    assert len(loader.Manifest(out).weights) == 2
    x = normal(2, 8)
    product = x @ matrix.T
    expected = (product + weights["value.bias"]) / (1 + np.exp(-product))
    np.testing.assert_allclose(loader.load(out)(x=x)["output"], expected, rtol=1e-4, atol=1e-4)


def test_tied_tensors_that_differ(tmp_path: Path) -> None:
    weights = {"value.weight": normal(8, 8), "gate.weight": normal(8, 8), "value.bias": normal(8)}
    save_file(weights, tmp_path / "tied.safetensors")
    done = compiling(
        f"{EAGER}:tied", "--weights", tmp_path / "tied.safetensors", "-o", tmp_path / "out"
    )
    assert done.exit_code == 4
    assert "tensors that are one weight of the module differ" in done.stderr


def test_a_shared_weight_has_its_owners_name(tmp_path: Path) -> None:
    table = normal(12, 8)
    save_file({"weight": table}, tmp_path / "tied.safetensors")
    out, source = tmp_path / "out", ("--weights", tmp_path / "tied.safetensors")
    done = compiling(f"{GRAPH}:Tied", *source, "--input", "x=float32[n,8]", "-o", out, "--check")
    assert done.exit_code == 0, done.output
    x = normal(3, 8)
    output = loader.load(out)(x=x)["output"]
    np.testing.assert_allclose(output, x @ table.T @ table, rtol=1e-4, atol=1e-4)
    assert [spec.name for spec in loader.Manifest(out).weights] == ["weight"]


@pytest.fixture
def quantized(tmp_path: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """A GGUF file with one Q8_0 tensor, and its values."""
    import gguf

    packed = quantize(normal(6, 64), QuantizationEncoding.Q8_0, tensor="w")
    path = tmp_path / "quantized.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor("inner.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, dequantize(packed, QuantizationEncoding.Q8_0, tensor="w")


def test_quantized_weights(quantized: tuple[Path, Any], tmp_path: Path) -> None:
    path, values = quantized
    x, out = normal(3, 64), tmp_path / "out"
    inputs = ("--weights", path, "--input", "x=float32[n,64]", "-o", out, "--check", "--force")
    for dtype, error in ((), 2e-2), (("--dtype", "bfloat16"), 5e-2):
        done = compiling(f"{GRAPH}:Quantized", *inputs, *dtype)
        assert done.exit_code == 0, done.output
        output = loader.load(out)(x=x)["output"]
        np.testing.assert_allclose(output, x @ values.T, rtol=error, atol=20 * error)
        assert {spec.dtype for spec in loader.Manifest(out).weights} == {
            dtype[1] if dtype else "uint8"
        }


# Mistakes


def test_everything_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    weights = {
        "up.weight": normal(16, 24),
        "up.bais": normal(24),
        "down.weight": normal(3, 24).astype(np.float16),
        "down.bias": normal(3),
        "extra": normal(2),
    }
    save_file(weights, tmp_path / "w.safetensors")
    done = compiling(
        f"{GRAPH}:MLP", "--weights", tmp_path / "w.safetensors", "--input", INPUT,
        "-o", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.exit_code == 4
    error = json.loads(done.stdout)["error"]
    assert error["what"] == "the tensors do not fit the module MLP"
    assert error["file"] == str(tmp_path / "w.safetensors")
    assert "--dtype TYPE" in error["hint"]
    assert error["problems"] == [
        "'up.bias' is missing; did you mean 'up.bais'?",
        "'extra' is not used",
        "'up.bais' is not used",
        "'down.weight' is float16[3, 24], declared float32[3, 24]",
        "'up.weight' is float32[16, 24], declared float32[24, 16]",
    ]


@pytest.mark.long
def test_a_prefix_and_another_type(tmp_path: Path) -> None:
    inner = {f"model.mlp.{name}": values.astype(np.float16) for name, values in MLP.items()}
    save_file(inner | {"head": normal(4)}, tmp_path / "w.safetensors")
    out = tmp_path / "out"
    inputs = (f"{GRAPH}:mlp", "--weights", tmp_path / "w.safetensors", "--input", INPUT, "-o", out)
    done = compiling(*inputs, "--prefix", "model.mlp", "--dtype", "float16", "--check")
    assert done.exit_code == 0, done.output
    x = normal(2, 16)
    np.testing.assert_allclose(loader.load(out)(x=x)["output"], mlp(x), rtol=2e-2, atol=5e-2)
    done = compiling(*inputs, "--prefix", "model.mpl", "--force")
    assert done.exit_code == 2
    assert "no tensor's name begins with --prefix 'model.mpl'" in done.stderr
    done = compiling(*inputs, "--prefix", "model.mlp.", "--dtype", "float16", "--force")
    assert done.exit_code == 0, done.output
    done = compiling(*inputs, "--force")
    assert done.exit_code == 4
    assert "help: try --prefix model.mlp\n" in done.stderr


def test_only_types_can_be_converted(tmp_path: Path) -> None:
    save_file(MLP | {"up.bias": normal(25)}, tmp_path / "w.safetensors")
    inputs = (f"{GRAPH}:MLP", "--weights", tmp_path / "w.safetensors", "--input", INPUT)
    done = compiling(*inputs, "-o", tmp_path / "out")
    assert done.exit_code == 4
    assert "declared float32[24]" in done.stderr
    assert "help:" not in done.stderr


WRONG_SOURCES: dict[str, tuple[str, int, str]] = {
    "no name": (f"{GRAPH}", 2, "does not say which module of the file is meant"),
    "no such name": (f"{GRAPH}:MPL", 2, "did you mean 'MLP'?"),
    "not a module": (f"{GRAPH}:not_a_module", 2, "is not a module of maxtool.nn but int"),
    "arguments": (f"{GRAPH}:Sized", 2, "takes arguments (width)"),
    "no such file": ("nowhere.py:MLP", 3, "no such file"),
    "an error in a function": (
        f"{GRAPH}:broken",
        4,
        "broken() raises RuntimeError: nobody is home",
    ),
    "an error in forward": (f"{GRAPH}:Failing", 4, "in forward: return self.inner(x) + float"),
}


@pytest.mark.parametrize("case", WRONG_SOURCES)
def test_a_module_that_cannot_be_had(tmp_path: Path, case: str) -> None:
    source, code, says = WRONG_SOURCES[case]
    save_file({"inner.weight": normal(4, 4)}, tmp_path / "w.safetensors")
    done = compiling(
        source, "--weights", tmp_path / "w.safetensors", "--input", "x=float32[n,4]",
        "-o", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == code, done.output
    assert says in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_that_name\n", "ModuleNotFoundError"),
        ("def f(:\n    pass\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_file_that_raises(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    done = compiling(f"{tmp_path / 'mine.py'}:X", "-o", tmp_path / "out")
    assert done.exit_code == 4
    assert f"mine.py raises {says}" in done.stderr
    assert "line 1" in done.stderr


WRONG_OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "names": (("--input", "y=float32[n,16]"), "'y' is unknown"),
    "nothing": ((), "'x' is missing"),
    "method": (("--entry", "forwrad", "--input", INPUT), "did you mean 'forward'?"),
    "type": (("--input", "x=flot32[n,16]"), "did you mean 'float32'"),
    "size": (("--input", "x=float32[0,16]"), "a size is a number from 1"),
    "form": (("--input", "x"), "is not NAME=TYPE[SIZE,...]"),
    "entry": (("--input", "decode.x=float32[n,16]"), "there is no --entry 'decode'"),
    "two names": (("--entry", "a=compare"), "error: entry a, method compare, does not take these"),
    "one name": (("--entry", "compare"), "error: compare does not take these inputs"),
    "bytes": (("--input", f"x=float32[{2**46},2]"), f"takes at least {2**49} bytes"),
    "a method of all modules": (
        ("--entry", "load_state_dict", "--input", INPUT),
        "load_state_dict is a method of maxtool's Module",
    ),
    "methods of this one": (("--entry", "compile"), "methods of MLP: compare, forward, third"),
    "twice": (("--input", INPUT, "--input", INPUT), "--input x is there twice"),
    "entry twice": (("--entry", "a=b", "--entry", "a=c"), "--entry a is there twice"),
    "recipe": (("--input", INPUT, "--recipe", "llama"), "--recipe: for a checkpoint"),
    "context": (("--context", "4", "--pooling", "cls"), "--context, --pooling: for a checkpoint"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_options_that_do_not_fit(checkpoint: Path, tmp_path: Path, case: str) -> None:
    options, says = WRONG_OPTIONS[case]
    done = compiling(f"{GRAPH}:MLP", "--weights", checkpoint, *options, "-o", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.stderr.split())


def test_options_of_modules_are_not_for_checkpoints(tmp_path: Path) -> None:
    done = compiling("model.gguf", "--input", INPUT, "--entry", "a", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "--input, --entry: for a module (FILE.py:NAME)" in done.stderr


def test_weights_are_asked_for(tmp_path: Path) -> None:
    done = compiling(f"{GRAPH}:MLP", "--input", INPUT, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "--weights CHECKPOINT says where" in done.stderr


# What is written


def test_the_plan_says_the_exact_bytes(checkpoint: Path, tmp_path: Path) -> None:
    target = ("--target", "cpu:x86-64-v2", "-o", tmp_path / "out")
    inputs = (f"{GRAPH}:MLP", "--weights", checkpoint, "--input", INPUT, *target)
    done = compiling(*inputs, "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert not (tmp_path / "out").exists()
    assert (plan["schema"], plan["dry_run"], plan["recipe"]) == ("maxtool.compile/1", True, None)
    assert plan["entries"]["forward"] == {
        "inputs": {"x": "float32[batch, 16]"},
        "outputs": {"output": "float32[batch, 3]"},
    }
    done = compiling(*inputs, "--json", "--standalone")
    written = json.loads(done.stdout)
    assert plan["weight_bytes"] == (tmp_path / "out" / "weights.bin").stat().st_size
    files = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert written["bytes"] == sum(file.stat().st_size for file in files)
    assert list((tmp_path / "out" / "lib").iterdir())


def test_another_machine_checks_what_was_recorded(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inputs = (f"{GRAPH}:MLP", "--weights", checkpoint, "--input", INPUT, "-o", out)
    done = compiling(*inputs, "--check", "--target", "cpu:x86-64-v2")
    assert done.exit_code == 0, done.output
    assert "outputs with 4 calls of the graph" in done.stdout
    ran = program(out, "--check")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("forward, batch 1: output: relative error")


@pytest.mark.long
def test_the_same_bytes_again(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(MODULES, tmp_path / "elsewhere")
    for file, name in (GRAPH, "one"), (tmp_path / "elsewhere" / "graph_style.py", "two"):
        inputs = ("--weights", checkpoint, "--input", INPUT, "-o", tmp_path / name)
        assert compiling(f"{file}:MLP", *inputs).exit_code == 0
    left, right = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir() if file.is_file()}
        for name in ("one", "two")
    )
    assert left == right


def test_a_module_for_gpus_that_are_elsewhere(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inputs = (f"{GRAPH}:MLP", "--weights", checkpoint, "--input", INPUT, "-o", out)
    done = compiling(*inputs, "--target", "cuda:sm_80", "--dtype", "float16", "--check", "--json")
    assert done.exit_code == 0, done.output
    written = json.loads(done.stdout)
    assert (written["check"]["status"], written["check"]["calls"]) == ("recorded", 4)
    assert written["kernels"].keys() == {"sm_80"}
    assert {"sm_80.cubin", "check.npz", "model.so"} <= {file.name for file in out.iterdir()}
    with pytest.raises(loader.MachineLacks):
        loader.load(out)


def test_inspecting_what_was_compiled(folder: Path) -> None:
    done = CliRunner().invoke(app, ["inspect-weights", str(folder), "--metadata", "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert [tensor["name"] for tensor in shown["tensors"]] == sorted(MLP)
    assert (shown["metadata"]["architecture"], shown["metadata"]["task"]) == ("MLP", None)


def test_sources_are_not_read_from_urls(tmp_path: Path) -> None:
    done = compiling("https://example.org/mlp.py:MLP", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "a module is executed" in done.stderr
