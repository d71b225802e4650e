"""``maxtool inspect-weights`` as a user runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from rich.table import Table
from typer.testing import CliRunner, Result

from maxtool.cli import tables
from maxtool.cli.app import app
from maxtool.cli.inspect import overview
from maxtool.cli.output import Output
from maxtool.cli.units import TIMES
from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding
from maxtool.weights import TensorSpec
from maxtool.weights.formats import gguf


def run(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["inspect-weights", *map(str, arguments)], env=env)


def lines(result: Result) -> list[str]:
    """The lines on stdout with their columns one space apart, and an ASCII x.

    What the recipes say stands between the first line and the first blank one, and is left out.
    """
    text = result.stdout.replace(TIMES, "x")
    shown = [" ".join(line.split()) for line in text.splitlines()]
    return [shown[0], *shown[shown.index("") :]]


def words(result: Result) -> list[list[str]]:
    return [line.split() for line in lines(result)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    arrays = {
        f"model.layers.{layer}.{part}.weight": np.zeros((4, 8), np.float32)
        for layer in range(12)
        for part in ("up", "down")
    }
    arrays["model.norm.weight"] = np.zeros(8, ml_dtypes.bfloat16)
    result = tmp_path / "tiny"
    result.mkdir()
    safetensors.numpy.save_file(arrays, result / "model.safetensors", {"format": "pt"})
    (result / "config.json").write_text('{"model_type": "llama", "vocab_size": 512}')
    return result


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    spec = TensorSpec("w", DType.float32, (2, 32), QuantizationEncoding.Q8_0)
    metadata = {
        "general.architecture": "llama",
        "eps": np.float32(1e-6),
        "nan": np.float32("nan"),
        "tokens": [f"token{number}" for number in range(1000)],
        "scores": np.arange(1000, dtype=np.float32),
        "template": "{{ x }}\n" * 100,
    }
    gguf.write(tmp_path / "m.gguf", [spec], [np.zeros((2, 34), np.uint8)], metadata)
    return tmp_path / "m.gguf"


def test_the_tree(folder: Path) -> None:
    result = run(folder)
    assert result.exit_code == 0
    assert lines(result) == [
        "tiny safetensors · 1 file · 25 tensors · 776 parameters · 3.02 KiB",
        "",
        "name type shape params bytes share",
        "model F32 +1 776 3.02 KiB 100.0%",
        "├ layers.{0..11} (x12) F32 768 3.00 KiB 99.5%",
        "│ ├ down.weight F32 4x8 384 1.50 KiB 49.7%",
        "│ └ up.weight F32 4x8 384 1.50 KiB 49.7%",
        "└ norm.weight BF16 8 8 16 B 0.5%",
        "",
        "type tensors parameters bytes share",
        "F32 24 768 3.00 KiB 99.5%",
        "BF16 1 8 16 B 0.5%",
    ]


def test_depth_cuts_the_tree(folder: Path) -> None:
    assert [line[:1] for line in words(run(folder, "--depth", 1))][3:5] == [["model"], []]
    assert len(words(run(folder, "--depth", 2))) == len(words(run(folder))) - 2


def test_flat_lists_every_name_in_natural_order(folder: Path) -> None:
    names = [line[0] for line in words(run(folder, "--flat"))[3:28]]
    assert names[4] == "model.layers.2.down.weight"
    assert names[-1] == "model.norm.weight"


QUANTIZED = Path(__file__).resolve().parents[1] / "data" / "quantized" / "ct-int4-group"
QUERY = "model.layers.0.self_attn.q_proj.weight"


def test_quantized_weights_are_shown_as_what_they_mean() -> None:
    result = run(QUANTIZED, "--depth", 1)
    assert "21 tensors" in result.stdout
    assert "recipe llama · 21 weights · everything fits" in result.stdout
    assert "14 INT4 weights are decoded as they are read" in result.stderr
    flat = run(QUANTIZED, "--flat", "--filter", QUERY)
    assert [line[0] for line in words(flat)[3:]] == [
        f"{QUERY}_{part}" for part in ("packed", "scale", "shape")
    ]


def test_json_has_the_tensors_that_make_a_weight() -> None:
    result = run(QUANTIZED, "--filter", QUERY, "--json")
    (tensor,) = json.loads(result.stdout)["tensors"]
    known = {key: tensor[key] for key in ("name", "type", "dtype", "encoding", "shape", "bytes")}
    stored = tensor["stored"]
    sizes = {part["name"]: (part["type"], part["shape"], part["bytes"]) for part in stored}
    assert known == {
        "name": QUERY,
        "type": "INT4",
        "dtype": "bfloat16",
        "encoding": None,
        "shape": [32, 32],
        "bytes": 512 + 128 + 16,
    }
    assert sizes == {
        f"{QUERY}_packed": ("I32", [32, 4], 512),
        f"{QUERY}_scale": ("BF16", [32, 2], 128),
        f"{QUERY}_shape": ("I64", [2], 16),
    }


def test_filter(folder: Path) -> None:
    result = run(folder, "--filter", "*.1?.up.*", "--flat")
    assert "2 of 25 tensors" in result.stdout
    assert [line[0] for line in words(result)[3:]] == [
        "model.layers.10.up.weight",
        "model.layers.11.up.weight",
    ]
    nothing = run(folder, "--filter", "nothing*")
    assert nothing.exit_code == 1
    assert "no tensor's name matches 'nothing*'" in nothing.stderr
    assert not nothing.stdout


def test_json(folder: Path) -> None:
    report = json.loads(run(folder, "--json", "--metadata").stdout)
    assert report["schema"] == "maxtool.inspect-weights/1"
    assert report["format"] == "safetensors"
    assert report["total"] == {"tensors": 25, "parameters": 776, "bytes": 3088}
    assert report["types"]["BF16"] == {"tensors": 1, "parameters": 8, "bytes": 16}
    assert report["metadata"] == {"format": "pt"}
    assert report["config"] == {"model_type": "llama", "vocab_size": 512}
    norm = report["tensors"][-1]
    assert {key: norm[key] for key in ("name", "type", "dtype", "encoding", "shape", "bytes")} == {
        "name": "model.norm.weight",
        "type": "BF16",
        "dtype": "bfloat16",
        "encoding": None,
        "shape": [8],
        "bytes": 16,
    }
    stored = (folder / "model.safetensors").read_bytes()
    assert norm["offset"] + norm["bytes"] == len(stored)
    assert "metadata" not in json.loads(run(folder, "--json").stdout)


def test_json_metadata_is_whole_and_valid(gguf_file: Path) -> None:
    text = run(gguf_file, "--json", "--metadata").stdout
    report = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert len(report["metadata"]["tokens"]) == 1000
    assert report["metadata"]["scores"][-1] == 999
    assert report["metadata"]["nan"] == "nan"
    assert report["config"] is None
    assert report["tensors"][0]["encoding"] == "Q8_0"


def test_metadata_is_abbreviated(gguf_file: Path) -> None:
    text = run(gguf_file, "--metadata").stdout
    assert "['token0', 'token1', 'token2', 'token3', 'token4', 'token5', ... 994 more]" in text
    assert "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, ... 994 more]" in text
    assert "1e-06" in text
    assert "... (800 characters)" in text
    assert "metadata" not in run(gguf_file).stdout


def test_metadata_shows_the_configuration(folder: Path) -> None:
    shown = words(run(folder, "--metadata"))
    assert ["format", "pt"] in shown
    assert ["config.json"] in shown
    assert ["vocab_size", "512"] in shown


HOSTILE_NAMES = ["\x1b[31mred\x1b[0m", "[red]markup[/red]", "line\nbreak", "\u202egnp.exe", "[/]"]


@pytest.mark.parametrize("flag", ["--flat", "--metadata"])
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_reach_the_terminal_escaped(tmp_path: Path, name: str, flag: str) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({name: np.zeros(1, np.float32)}, path, {"note": name})
    result = run(path, flag)
    assert result.exit_code == 0
    assert not {"\x1b", "\u202e"} & set(result.stdout)
    shown = name.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert shown in result.stdout


def test_notes_are_warnings_on_stderr(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = {"weight_map": {"model.norm.weight": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    result = run(folder)
    assert "1 tensor ·" in result.stdout
    assert "warning" in result.stderr
    assert "and 14 more" in result.stderr


def test_errors_have_the_documented_exit_code(tmp_path: Path) -> None:
    missing = run(tmp_path / "none")
    assert missing.exit_code == 3
    assert "no such file or folder" in missing.stderr
    (tmp_path / "x.gguf").write_bytes(b"GGUF\3\0\0\0")
    broken = run(tmp_path / "x.gguf")
    assert broken.exit_code == 3
    assert "byte 8" in broken.stderr
    assert not broken.stdout


def test_piped_output_keeps_long_names_on_one_line(tmp_path: Path) -> None:
    name = ".".join(["segment"] * 30)
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({name: np.zeros(1, np.float32)}, path)
    assert any(line[:1] == [name] for line in words(run(path, env={"COLUMNS": ""})))


def test_eighty_columns_are_enough(folder: Path) -> None:
    shown = run(folder, "--metadata", env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert not any("…" in line for line in shown)


def fresh(*arguments: str) -> Sequence[str]:
    """The modules that a command loads in a new interpreter."""
    script = (
        "import sys; from maxtool.cli.app import app;"
        f"app({list(arguments)!r}, standalone_mode=False);"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.rpartition("MODULES")[2].split()


def test_only_what_is_needed_is_loaded(folder: Path) -> None:
    loaded = fresh("inspect-weights", str(folder))
    assert "numpy" in loaded
    assert not {"tvm", "tvm_ffi", "gguf", "onnx", "torch"} & set(loaded)


DATA = Path(__file__).resolve().parents[1] / "data"


def test_recognises_a_model() -> None:
    assert "recipe llama · 21 weights · everything fits" in run(DATA / "tiny-llama").stdout
    shown = json.loads(run(DATA / "tiny-mistral", "--json").stdout)["recognition"]
    assert (shown["recipe"], shown["problems"]) == ("mistral", [])


def test_says_what_does_not_fit_a_model(tmp_path: Path) -> None:
    result = tmp_path / "model"
    shutil.copytree(DATA / "tiny-llama", result)
    arrays = safetensors.numpy.load_file(result / "model.safetensors")
    del arrays["model.norm.weight"]
    arrays["extra"] = np.zeros(3, np.float32)
    safetensors.numpy.save_file(arrays, result / "model.safetensors")
    shown = run(result)
    assert shown.exit_code == 0
    assert "recipe llama · 20 weights · 2 problems" in shown.stdout
    assert "missing: model.norm.weight" in shown.stdout
    assert "not used: extra" in shown.stdout


def test_says_why_no_recipe_fits(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "rwkv7"}')
    assert "recipe none: the model is a 'rwkv7'" in run(folder).stdout


def test_long_metadata_is_not_laid_out_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich takes seconds for that: files may have 65,536 keys."""
    keys = {f"some.key.{i}": f"value {i}" for i in range(3000)}
    spec = TensorSpec("a", DType.float32, (1,))
    gguf.write(tmp_path / "x.gguf", [spec], [np.ones(1, np.float32)], keys)
    drawn: list[int] = []

    def draw(out: Output, table: Table) -> None:
        drawn.append(table.row_count)
        tables.draw(out, table)

    monkeypatch.setattr(overview, "draw", draw)
    text = run(tmp_path / "x.gguf", "--metadata").stdout
    shown = [line.split() for line in text.splitlines() if line.startswith("some.key.")]
    assert shown == [[key, *value.split()] for key, value in keys.items()]
    assert max(drawn, default=0) < 10
