"""``maxtool convert`` as a user runs it: messages, exit codes, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from tests.conversion.quantized_models import write_older
from tests.effort import thinned

DATA = Path(__file__).resolve().parents[1] / "data"
MODEL = DATA / "tiny-llama"
Q0 = "model.layers.0.self_attn.q_proj.weight"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    shutil.copytree(MODEL, folder)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_tensors(folder: Path, **changes: np.ndarray | None) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file) | changes
    save_file({name: array for name, array in weights.items() if array is not None}, file)


def test_converts(tmp_path: Path) -> None:
    result = run(MODEL, "-o", tmp_path / "out.gguf", "--quantize", "Q8_0")
    assert result.exit_code == 0
    assert (tmp_path / "out.gguf").stat().st_size > 0
    assert result.stdout.startswith(f"wrote {tmp_path / 'out.gguf'}: recipe llama, tensors: ")
    assert "written as float16" in result.stderr
    back = run(tmp_path / "out.gguf", "-o", tmp_path / "out")
    assert back.exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.gguf"]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.model",
        "tokenizer_config.json",
    }


def test_dry_run_says_the_exact_bytes(tmp_path: Path) -> None:
    for name in ("out.gguf", "out", "out.safetensors"):
        planned = run(MODEL, "-o", tmp_path / name, "--dry-run", "--json")
        assert planned.exit_code == 0
        assert list(tmp_path.iterdir()) == []
        content = json.loads(planned.stdout)
        assert content["schema"] == "maxtool.convert/2"
        assert content["dry_run"] is True
        assert run(MODEL, "-o", tmp_path / name).exit_code == 0
        written = tmp_path / name
        files = [written] if written.is_file() else list(written.iterdir())
        assert sum(file.stat().st_size for file in files) == content["bytes"]
        shutil.rmtree(written) if written.is_dir() else written.unlink()


@pytest.mark.usefixtures("little_room")
def test_a_dry_run_needs_no_room(tmp_path: Path) -> None:
    result = run(MODEL, "-o", tmp_path / "out.gguf", "--dry-run")
    assert result.exit_code == 0
    assert "bytes and 1000 are free" in result.stderr
    assert "would write" in result.stdout
    assert run(MODEL, "-o", tmp_path / "out.gguf").exit_code == 6
    assert list(tmp_path.iterdir()) == []


def test_dry_run_lists_every_tensor(tmp_path: Path) -> None:
    result = run(MODEL, "-o", tmp_path / "out.gguf", "--dry-run")
    assert "blk.0.attn_q.weight  F32  [48, 40]  7680" in result.stdout
    assert "would write" in result.stdout


def missing(folder: Path) -> None:
    shutil.rmtree(folder)


def truncated(folder: Path) -> None:
    file = folder / "model.safetensors"
    os.truncate(file, file.stat().st_size - 100)


def truncated_header(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 50)


def broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def fewer_layers(folder: Path) -> None:
    edit_config(folder, num_hidden_layers=1)


def other_width(folder: Path) -> None:
    edit_config(folder, hidden_size=48)


def unknown(folder: Path) -> None:
    edit_config(folder, model_type="elsewhere")


def unsupported(folder: Path) -> None:
    edit_config(folder, hidden_act="prelu")


def unknown_key(folder: Path) -> None:
    edit_config(folder, mystery=1)


def quantized(folder: Path) -> None:
    edit_config(folder, quantization_config={"bits": 4})


def missing_tensor(folder: Path) -> None:
    edit_tensors(folder, **{Q0: None})


def extra_tensor(folder: Path) -> None:
    edit_tensors(folder, extra=np.zeros(2, np.float32))


def too_large(folder: Path) -> None:
    edit_tensors(folder, **{Q0: np.full((48, 40), 1e6, np.float32)})


BAD: list[tuple[Callable[[Path], None], int, str]] = [
    (missing, 3, "no such file"),
    (truncated, 3, "model.safetensors"),
    (truncated_header, 3, "model.safetensors"),
    (broken_config, 3, "config.json"),
    (fewer_layers, 4, "layers.1.attn.q.weight, which this configuration does not have"),
    (other_width, 4, "found [48, 40]"),
    (unknown, 4, "known recipes: "),
    (unsupported, 4, "silu"),
    (unknown_key, 4, "--ignore-config"),
    (quantized, 4, "never ignored"),
    (missing_tensor, 4, f"missing: {Q0} [48, 40]"),
    (extra_tensor, 4, "not used: extra [2]"),
    (too_large, 4, "blk.0.attn_q.weight"),
]


@pytest.mark.parametrize(("spoil", "code", "message"), BAD)
@pytest.mark.parametrize("name", ["out.gguf", "out"])
def test_bad_input_has_one_message_and_leaves_nothing(
    tmp_path: Path, source: Path, spoil: Callable[[Path], None], code: int, message: str, name: str
) -> None:
    spoil(source)
    before = sorted(tmp_path.rglob("*"))
    expected = message if name == "out.gguf" else message.replace("blk.0.attn_q.weight", Q0)
    result = run(source, "-o", tmp_path / name, "--dtype", "float16")
    assert result.exit_code == code
    assert expected in result.stderr
    assert result.stderr.count("error:") == 1
    assert result.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_truncated_gguf(tmp_path: Path) -> None:
    run(MODEL, "-o", tmp_path / "a.gguf")
    size = (tmp_path / "a.gguf").stat().st_size
    for length in (size - 1000, size // 2, 100, 10, 0):
        os.truncate(tmp_path / "a.gguf", length)
        result = run(tmp_path / "a.gguf", "-o", tmp_path / "b")
        assert result.exit_code == 3
        assert "a.gguf" in result.stderr
        assert [p.name for p in tmp_path.iterdir()] == ["a.gguf"]


def test_an_existing_output_is_left_as_it_is(tmp_path: Path) -> None:
    output = tmp_path / "out.gguf"
    output.write_bytes(b"mine")
    result = run(MODEL, "-o", output)
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert output.read_bytes() == b"mine"
    assert run(MODEL, "-o", output, "--force").exit_code == 0
    assert output.read_bytes()[:4] == b"GGUF"


def test_a_failed_replacement_keeps_the_old_output(tmp_path: Path, source: Path) -> None:
    too_large(source)
    output = tmp_path / "out.gguf"
    output.write_bytes(b"mine")
    assert run(source, "-o", output, "--force", "--dtype", "float16").exit_code == 4
    assert output.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dtype", "int8"],
        ["--quantize", "Q8_K"],
        ["--quantize", "Q8_0", "--dtype", "float16"],
        ["--pure"],
        ["--strict", "--dtype", "float16"],
        ["--quantize", "Q8_0", "--tensor-type", "Q8_0"],
        ["--quantize", "Q8_0", "--tensor-type", "=Q8_0"],
        ["--quantize", "Q8_0", "--tensor-type", "*=Q4_K_M"],
        ["--quantize", "Q8_0", "--tensor-type", "blk.77.*=Q4_K"],
        ["--quantize", "Q8_0", "--output-tensor-type", "Q9"],
        ["--imatrix", "a.dat"],
        ["--to", "onnx"],
        ["--recipe", "lama"],
    ],
)
def test_usage(tmp_path: Path, arguments: list[str]) -> None:
    result = run(MODEL, "-o", tmp_path / "out.gguf", *arguments)
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_ignored_keys_pass(tmp_path: Path, source: Path) -> None:
    edit_config(source, mystery=1, other=2)
    keys = ["--ignore-config", "mystery", "--ignore-config", "other"]
    result = run(source, "-o", tmp_path / "out.gguf", *keys)
    assert result.exit_code == 0
    assert "mystery = 1 is ignored as asked" in result.stderr


def test_names_from_files_are_escaped(tmp_path: Path, source: Path) -> None:
    edit_tensors(source, **{"evil\x1b[31m[red]": np.zeros(2, np.float32)})
    result = run(source, "-o", tmp_path / "out.gguf")
    assert result.exit_code == 4
    assert "\x1b" not in result.stderr
    assert "[red]" in result.stderr


def test_errors_as_json(tmp_path: Path, source: Path) -> None:
    unknown(source)
    result = run(source, "-o", tmp_path / "out.gguf", "--json")
    content = json.loads(result.stdout)
    assert content["error"]["exit_code"] == result.exit_code == 4


def large_model(folder: Path) -> None:
    """Half a gigabyte of zeros that take no room on the disk."""
    vocab, width = 1 << 17, 1 << 10
    shutil.copytree(MODEL, folder)
    (folder / "tokenizer.model").unlink()
    weights = {
        name: np.zeros((1, 1), np.float32) for name in load_file(folder / "model.safetensors")
    }
    edit_config(folder, vocab_size=vocab, hidden_size=width, num_hidden_layers=2, head_dim=12)
    config = json.loads((folder / "config.json").read_text())
    rows = {
        "q_proj": 12 * config["num_attention_heads"],
        "k_proj": 12 * config["num_key_value_heads"],
        "v_proj": 12 * config["num_key_value_heads"],
        "gate_proj": config["intermediate_size"],
        "up_proj": config["intermediate_size"],
    }
    columns = {"o_proj": rows["q_proj"], "down_proj": config["intermediate_size"]}
    header: dict[str, object] = {}
    offset = 0
    for name in sorted(weights):
        part = name.split(".")[-2]
        shape = [vocab, width] if part in {"embed_tokens", "lm_head"} else [width]
        shape = [rows[part], width] if part in rows else shape
        shape = [width, columns[part]] if part in columns else shape
        end = offset + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    file = folder / "model.safetensors"
    file.write_bytes(len(raw).to_bytes(8, "little") + raw)
    os.truncate(file, 8 + len(raw) + offset)


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(["out.gguf", "out"], "out.gguf"))
def test_interrupted(tmp_path: Path, name: str, interruptible: Callable[[], None]) -> None:
    large_model(tmp_path / "source")
    output = tmp_path / name
    process = subprocess.Popen(
        [sys.executable, "-m", "maxtool", "convert", tmp_path / "source", "-o", output],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    deadline = time.monotonic() + 60
    while not (result := list(tmp_path.glob(f".{name}.*/new/{name}*"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert result
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted" in stderr
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


@pytest.mark.long
def test_no_compiler_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from maxtool.cli.app import app\n"
        f"try: app(['convert', {str(MODEL)!r}, '-o', {str(tmp_path / 'a.gguf')!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'tvm', 'onnx', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("name", ["out", "out.gguf"])
def test_interrupted_once_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The rename is done and the old output is being removed: it is too late for nothing."""
    from maxtool.files.scratch import Scratch

    end = Scratch.end

    def interrupted(scratch: Scratch) -> None:
        end(scratch)
        raise KeyboardInterrupt

    monkeypatch.setattr(Scratch, "end", interrupted)
    result = run(MODEL, "-o", tmp_path / name)
    assert result.exit_code == 130
    assert f"interrupted; {tmp_path / name} was written" in result.stderr.replace("\n", "")
    assert (tmp_path / name).exists()


def test_the_longest_name(tmp_path: Path) -> None:
    name = "x" * 250 + ".gguf"
    assert run(MODEL, "-o", tmp_path / name).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def types(output: Path) -> dict[str, str]:
    return {t.name: t.tensor_type.name for t in GGUFReader(output).tensors}


def test_options_of_quantizing(tmp_path: Path) -> None:
    source, output = DATA / "fireside-256", tmp_path / "out.gguf"
    patterns = ["--tensor-type", "*.attn_v.*=q8_0", "--tensor-type", "blk.1.attn_*=BF16"]
    head = ["--output-tensor-type", "Q5_0"]
    assert run(source, "-o", output, "--quantize", "q4_k_m", *patterns, *head).exit_code == 0
    embedding, written = "token_embd.weight", types(output)
    assert written[embedding] == "Q5_0"
    assert written["blk.0.attn_v.weight"] == "Q8_0"
    assert written["blk.1.attn_v.weight"] == "BF16"
    assert written["blk.0.attn_q.weight"] == "Q4_K"
    again = ["--force", "--quantize", "Q4_K", "--pure", "--token-embedding-type", "f32"]
    assert run(source, "-o", output, *again).exit_code == 0
    assert types(output)[embedding] == "F32"
    assert types(output)["blk.1.ffn_down.weight"] == "Q4_K"


def test_quantizing_again_is_asked_for(tmp_path: Path) -> None:
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    assert run(DATA / "fireside-256", "-o", first, "--quantize", "Q8_0").exit_code == 0
    refused = run(first, "-o", second, "--quantize", "Q4_K_M")
    assert refused.exit_code == 2
    assert "--allow-requantize" in refused.stderr
    assert not second.exists()
    done = run(first, "-o", second, "--quantize", "Q4_K_M", "--allow-requantize")
    assert done.exit_code == 0
    assert "at a further loss" in done.stderr
    norms = ["--include", "*norm.weight", "--force"]
    done = run(first, "-o", second, "--quantize", "Q4_K_M", *norms)
    assert done.exit_code == 0
    assert "loss" not in done.stderr


def test_fallbacks_are_told_in_a_line_each(tmp_path: Path) -> None:
    result = run(DATA / "tiny-mistral", "-o", tmp_path / "out.gguf", "--quantize", "Q4_K_M")
    notes = [line for line in result.stderr.splitlines() if "rows are not whole" in line]
    assert len(notes) == 2
    strict = run(DATA / "tiny-mistral", "-o", tmp_path / "b", "--quantize", "Q4_K_M", "--strict")
    assert strict.exit_code == 2
    file = tmp_path / "b.gguf"
    strict = run(DATA / "tiny-mistral", "-o", file, "--quantize", "Q4_K_M", "--strict")
    assert strict.exit_code == 4


def test_an_importance_matrix(tmp_path: Path) -> None:
    file, output = tmp_path / "a.dat", tmp_path / "out.gguf"
    command = [DATA / "fireside-256", "-o", output, "--quantize", "Q4_K_M", "--imatrix", file]
    assert run(*command).exit_code == 3
    file.write_bytes(b"GGUF, or not")
    assert run(*command).exit_code == 3
    write_older(file, {"blk.0.ffn_up.weight": np.ones((1, 255), np.float32)})
    assert run(*command).exit_code == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a.dat"]
    write_older(file, {"blk.0.ffn_up.weight": np.ones((1, 256), np.float32)})
    result = run(*command)
    assert result.exit_code == 0
    assert "quantized without importance" in result.stderr
    zeros = {f"blk.{layer}.ffn_up.weight": np.zeros((1, 256), np.float32) for layer in (0, 1)}
    write_older(file, zeros)
    result = run(*command, "--force")
    assert result.exit_code == 0
    said = " ".join(result.stderr.split())
    assert "2 tensors have importance of 0 in every column" in said
    assert "blk.0.ffn_up.weight and 1 more" in said


def test_options_of_recipes_where_none_reads_the_source(tmp_path: Path) -> None:
    """Options that were not given are never spoken of as if they were."""
    np.savez(tmp_path / "x.npz", a=np.ones(2, np.float32))
    result = run(tmp_path / "x.npz", "-o", tmp_path / "x.safetensors", "--ignore-config", "key")
    assert result.exit_code == 4
    assert "no recipe reads npz files" in result.stderr
    assert run(tmp_path / "x.npz", "-o", tmp_path / "x.safetensors").exit_code == 0
