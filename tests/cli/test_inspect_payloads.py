"""``maxtool inspect-weights`` where it reads payloads, compares, takes several paths and URLs."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner, Result

from maxtool.cli import tables
from maxtool.cli.app import app
from maxtool.cli.units import TIMES
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding, dequantize, quantize
from maxtool.weights import TensorSpec
from maxtool.weights.formats import gguf
from tests.machine import Stopwatch
from tests.weights.range_server import serve

GENERATOR = np.random.default_rng(3)
MATRIX = GENERATOR.standard_normal((4, 64)).astype(np.float32)
NORM = np.arange(1, 33).astype(ml_dtypes.bfloat16)
PACKED = quantize(MATRIX, QuantizationEncoding.Q8_0)
HOSTILE = "\x1b[31mred[/red]\u202e\n"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["inspect-weights", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def parsed(*arguments: object, code: int = 0) -> dict[str, Any]:
    text = run(*arguments, "--json", code=code).stdout
    result = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert isinstance(result, dict)
    return result


def words(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file({"m.weight": MATRIX, "norm.weight": NORM}, path)
    return path


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    spec = TensorSpec("m.weight", DType.float32, MATRIX.shape, QuantizationEncoding.Q8_0)
    gguf.write(tmp_path / "q.gguf", [spec], [PACKED], {})
    return tmp_path / "q.gguf"


def test_stats_are_a_table(file: Path) -> None:
    actual = words(run(file, "--stats"))
    assert ["name", "type", "min", "max", "mean", "std", "zeros"] in actual
    wide = NORM.astype(float)
    expected = ["1", "32", f"{wide.mean():.4g}", f"{wide.std():.4g}", "0"]
    assert ["norm.weight", "BF16", *expected] in actual
    assert not run(file, "--stats").stderr


def test_stats_as_json(file: Path, quantized: Path) -> None:
    (matrix, _) = parsed(file, "--stats")["tensors"]
    assert matrix["stats"]["min"] == MATRIX.min()
    assert math.isclose(matrix["stats"]["std"], MATRIX.astype(float).std(), rel_tol=1e-12)
    (packed,) = parsed(quantized, "--stats")["tensors"]
    decoded = dequantize(PACKED, QuantizationEncoding.Q8_0)
    assert packed["stats"]["max"] == decoded.max()
    assert packed["stats"]["count"] == decoded.size
    assert "stats" not in parsed(file)["tensors"][0]


def test_values_that_are_no_numbers_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    bad = np.array([math.nan, math.inf, 2, 0], np.float32)
    safetensors.numpy.save_file({HOSTILE: bad, "none": np.empty(0, np.float32)}, path)
    result = run(path, "--stats")
    assert words(result)[3][2:] == ["min", "max", "mean", "std", "zeros", "nan", "inf"]
    assert "1 NaN and 1 infinite of 4 elements" in result.stderr
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    stats = {one["name"]: one["stats"] for one in parsed(path, "--stats")["tensors"]}
    assert (stats["none"]["count"], stats["none"]["min"], stats["none"]["std"]) == (0, None, None)
    assert (stats[HOSTILE]["max"], stats[HOSTILE]["nan"], stats[HOSTILE]["inf"]) == (2, 1, 1)


def test_values(file: Path, quantized: Path) -> None:
    text = run(file, "--values", "norm.weight[0:3]", "--values", "m.weight[1, 2]").stdout
    assert text.splitlines()[:2] == ["norm.weight[0:3]  BF16 32 → 3", "[1. 2. 3.]"]
    assert f"m.weight[1, 2]  F32 4{TIMES}64 → scalar" in text
    assert "share" not in text
    (one, other) = parsed(file, "--values", "norm.weight", "--values", "m.weight[-1]")["values"]
    assert one["values"] == list(range(1, 33))
    assert (one["slice"], other["slice"], other["shape"]) == ("", "[-1]", [64])
    assert other["values"] == MATRIX[-1].tolist()
    (packed,) = parsed(quantized, "--values", "m.weight[0, 30:34]")["values"]
    decoded = dequantize(PACKED, QuantizationEncoding.Q8_0)
    assert packed["values"] == decoded[0, 30:34].tolist()


def test_values_of_a_name_that_is_not_there(file: Path) -> None:
    result = run(file, "--values", "norm.wieght[0:3]", code=1)
    assert "no tensor 'norm.wieght'" in result.stderr
    assert "did you mean 'norm.weight'" in result.stderr
    assert "does not fit the shape [32]" in run(file, "--values", "norm.weight[40]", code=2).stderr
    assert run(file, "--values", HOSTILE, code=1).stderr.isprintable() is False
    assert "\x1b" not in run(file, "--values", HOSTILE, code=1).stderr


def test_many_values_are_abbreviated_but_not_in_json(file: Path, tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.arange(5000, dtype=np.int32)}, tmp_path / "w.safetensors")
    assert "..." in run(tmp_path / "w.safetensors", "--values", "w").stdout
    assert len(parsed(tmp_path / "w.safetensors", "--values", "w")["values"][0]["values"]) == 5000
    assert "..." not in run(file, "--values", "m.weight").stdout


def test_checksums(file: Path, quantized: Path) -> None:
    whole = hashlib.sha256(file.read_bytes()).hexdigest()
    shown = run(file, "--sha256").stdout.splitlines()
    assert f"{whole}  {file}" in shown
    assert f"{hashlib.sha256(NORM.tobytes()).hexdigest()}  norm.weight" in shown
    result = parsed(file, "--sha256")
    assert result["files"][0]["sha256"] == whole
    assert result["tensors"][0]["sha256"] == hashlib.sha256(MATRIX.tobytes()).hexdigest()
    (packed,) = parsed(quantized, "--sha256")["tensors"]
    assert packed["sha256"] == hashlib.sha256(PACKED.tobytes()).hexdigest()


def test_several_paths(file: Path, quantized: Path) -> None:
    text = run(file, quantized).stdout
    assert text.index("a.safetensors") < text.index("q.gguf")
    result = parsed(file, quantized, "--stats")
    assert result["schema"] == "maxtool.inspect-several/1"
    assert [one["format"] for one in result["checkpoints"]] == ["safetensors", "gguf"]
    assert all(one["tensors"][0]["stats"] for one in result["checkpoints"])
    missing = run(file, file.parent / "none", code=3)
    assert not missing.stdout


def test_equal_checkpoints(file: Path) -> None:
    assert "equal in name, type and shape: 2 tensors" in run(file, "--diff", file).stdout
    assert "and values: 2" in run(file, "--diff", file, "--stats").stdout
    result = parsed(file, "--diff", file, "--stats")
    assert (result["schema"], result["equal"], result["same"]) == (
        "maxtool.diff-weights/1",
        True,
        2,
    )
    assert [one["differing"] for one in result["differences"]] == [0, 0]


def test_checkpoints_that_differ(file: Path, quantized: Path, tmp_path: Path) -> None:
    text = run(file, "--diff", quantized, code=1).stdout
    assert "1 only in the first, 1 of another type or shape" in text
    result = parsed(file, "--diff", quantized, "--stats", code=1)
    assert [one["name"] for one in result["only_first"]] == ["norm.weight"]
    assert result["changed"][0]["second"]["type"] == "Q8_0"
    apart = np.abs(MATRIX.astype(float) - dequantize(PACKED, QuantizationEncoding.Q8_0))
    (difference,) = result["differences"]
    assert difference["largest"] == apart.max()
    assert tuple(difference["at"]) == np.unravel_index(apart.argmax(), apart.shape)
    other = tmp_path / "b.safetensors"
    changed = MATRIX.copy()
    changed[3, 5] = math.nan
    safetensors.numpy.save_file({"m.weight": changed, "norm.weight": NORM}, other)
    assert "equal in name" in run(file, "--diff", other).stdout
    lines = words(run(file, "--diff", other, "--stats", code=1))
    assert ["m.weight", "inf", "inf", "[3,", "5]", "1", "(0.4%)"] in lines
    assert parsed(file, "--diff", other, "--stats", code=1)["differences"][0]["largest"] == "inf"
    run(file, "--diff", other, "--stats", "--filter", "norm*")


def test_names_in_a_diff_are_escaped(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.safetensors"
    safetensors.numpy.save_file({HOSTILE: MATRIX, "m.weight": NORM}, other)
    result = run(file, "--diff", other, code=1)
    assert "\\x1b[31mred[/red]\\u202e\\n" in result.stdout
    assert not {"\x1b", "\u202e"} & set(result.stdout)


def test_a_diff_is_of_two(file: Path) -> None:
    assert "--diff compares one PATH" in run(file, file, "--diff", file, code=2).stderr
    run(file, "--diff", file, "--sha256", code=2)


def test_long_lists_are_drawn_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = run(file, "--flat").stdout.splitlines()
    monkeypatch.setattr(tables, "MAX_DRAWN", 0)
    written = run(file, "--flat").stdout.splitlines()
    assert [line.rstrip() for line in drawn] == written


def test_ten_thousand_names_take_seconds(tmp_path: Path) -> None:
    arrays = {f"layer.{n}.{HOSTILE}": np.zeros(1, np.int8) for n in range(10_000)}
    safetensors.numpy.save_file(arrays, tmp_path / "x.safetensors")
    with Stopwatch() as watch:
        result = run(tmp_path / "x.safetensors", "--flat")
    assert watch.seconds < 3  # rich's tables take twice that
    assert len(result.stdout.splitlines()) == 10_004
    assert "\x1b" not in result.stdout


def test_a_url(file: Path) -> None:
    with serve(file.parent) as server:
        place = server.url.removeprefix("http://")
        result = run(f"http://user:sesame@{place}/{file.name}?token=sesame")
        assert result.stdout.startswith("a.safetensors  safetensors · 1 file · 2 tensors")
        assert f"{server.url}/a.safetensors: " in result.stderr
        assert "in 1 request" in result.stderr
        report = parsed(f"http://user:sesame@{place}/{file.name}?token=sesame")
        assert report["path"] == report["tensors"][0]["file"] == f"{server.url}/a.safetensors"
        assert report["files"][0]["bytes"] == file.stat().st_size
        assert report["remote"]["requests"] == 1
        refused = run(f"http://u:sesame@{place}/{file.name}", "--stats", "--verbose", code=3)
        assert "only the headers of remote files" in refused.stderr
        gone = run(f"http://u:sesame@{place}/x.gguf?sesame", "-v", "--json", code=3)
        shown = [result, refused, gone]
        assert not any("sesame" in one.output for one in shown)
        assert "sesame" not in json.dumps(report)
