"""``maxtool compile`` as a user runs it: messages, exit codes, and nothing left behind."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
Q0 = "model.layers.0.self_attn.q_proj.weight"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["compile", *map(str, arguments)])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    shutil.copytree(DATA / "tiny-llama", folder)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_tensors(folder: Path, **changes: np.ndarray | None) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file) | changes
    save_file({name: array for name, array in weights.items() if array is not None}, file)


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def misfit(folder: Path) -> None:
    edit_tensors(folder, **{Q0: None, "stray.weight": np.zeros(3, np.float32)})
    weights = load_file(folder / "model.safetensors")
    edit_tensors(folder, **{"model.norm.weight": weights["model.norm.weight"][:-1].copy()})


# name, mutation of the source, more arguments, exit code, what the message says
BAD: dict[str, tuple[Callable[[Path], None], list[str], int, list[str]]] = {
    "missing source": (remove, [], 3, ["source"]),
    "truncated": (truncate, [], 3, ["model.safetensors"]),
    "tensors": (misfit, [], 4, [Q0, "stray.weight", "model.norm.weight"]),
    "config": (lambda f: edit_config(f, hidden_size=64), [], 4, ["self_attn.q_proj.weight", "64"]),
    "architecture": (lambda f: edit_config(f, model_type="rwkv7"), [], 4, ["rwkv7", "llama"]),
    "activation": (lambda f: edit_config(f, hidden_act="prelu"), [], 4, ["prelu", "silu"]),
    "unknown key": (lambda f: edit_config(f, novel=1), [], 4, ["novel", "--ignore-config"]),
    "recipe": (lambda _: None, ["--recipe", "lama"], 2, ["lama", "llama"]),
    "target": (lambda _: None, ["--target", "cpu:pentium9"], 2, ["pentium9"]),
    "device": (lambda _: None, ["--target", "tpu"], 2, ["tpu"]),
    "dtype": (lambda _: None, ["--dtype", "int4"], 2, ["int4", "bfloat16"]),
    "cache": (lambda _: None, ["--kv-dtype", "Q4_0"], 2, ["--kv-dtype 'Q4_0'", "bfloat16", "Q8_0"]),
    "context": (lambda _: None, ["--context", "100000"], 2, ["100000"]),
    "no context": (lambda _: None, ["--context", "0"], 2, ["--context 0"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(source: Path, tmp_path: Path, name: str) -> None:
    mutate, arguments, code, said = BAD[name]
    mutate(source)
    result = run(source, "-o", tmp_path / "out", *arguments)
    assert result.exit_code == code, result.stderr
    assert not result.stdout
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    for words in said:
        assert words in result.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"source"}


@pytest.mark.long
def test_output_is_not_replaced_unasked(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert run(source, "-o", output).exit_code == 0
    before = (output / "manifest.json").stat().st_mtime_ns
    refused = run(source, "-o", output)
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert (output / "manifest.json").stat().st_mtime_ns == before
    assert run(source, "-o", output, "--force").exit_code == 0
    assert (output / "manifest.json").stat().st_mtime_ns > before


@pytest.mark.parametrize("beside", ["", "{}", '{"schema": 1}', "[]", "not JSON", '{"name": "app"}'])
def test_other_folders_are_never_replaced(source: Path, tmp_path: Path, beside: str) -> None:
    """Keep folders of other programs, which may have a manifest.json too."""
    output = tmp_path / "precious"
    output.mkdir()
    (output / "thesis.tex").write_text("text")
    if beside:
        (output / "manifest.json").write_text(beside)
    assert run(source, "-o", output, "--force").exit_code == 2
    assert (output / "thesis.tex").read_text() == "text"
    inside = run(source, "-o", source / "out")
    assert inside.exit_code == 2
    assert not (source / "out").exists()


@pytest.mark.long
def test_what_was_put_into_an_artifact_is_never_removed(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert run(source, "-o", output).exit_code == 0
    cached = output / "loader" / "__pycache__"
    cached.mkdir()
    (cached / "model.cpython-311.pyc").write_bytes(b"")
    assert run(source, "-o", output, "--force").exit_code == 0
    (output / "notes").mkdir()
    (output / "notes" / "thesis.tex").write_text("text")
    refused = run(source, "-o", output, "--force")
    assert refused.exit_code == 2
    assert "notes/thesis.tex" in refused.stderr
    assert "run.py" not in refused.stderr
    assert (output / "notes" / "thesis.tex").read_text() == "text"


@pytest.mark.long
def test_what_to_type_next(source: Path, tmp_path: Path) -> None:
    result = run(source, "-o", tmp_path / "sp ace é")
    command = shlex.split(result.stderr.partition("run it: ")[2])
    assert command[1] == str(tmp_path / "sp ace é" / "run.py")
    done = subprocess.run([sys.executable, *command[1:], "--max-tokens", "2"], check=False)
    assert done.returncode == 0


@pytest.mark.long
def test_dry_run_writes_nothing(source: Path, tmp_path: Path) -> None:
    result = run(source, "-o", tmp_path / "out", "--dry-run", "--json")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["schema"] == "maxtool.compile/1"
    assert (shown["recipe"], shown["dialect"], shown["dtype"]) == ("llama", "hf", "float32")
    assert not (tmp_path / "out").exists()
    assert run(source, "-o", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out" / "weights.bin").stat().st_size == shown["weight_bytes"]


@pytest.mark.usefixtures("little_room")
def test_a_dry_run_needs_no_room(source: Path, tmp_path: Path) -> None:
    result = run(source, "-o", tmp_path / "out", "--dry-run")
    assert result.exit_code == 0
    assert "bytes and 1000 are free" in result.stderr
    assert "would write" in result.stdout
    result = run(source, "-o", tmp_path / "out")
    assert result.exit_code == 6
    assert "bytes and 1000 are free" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_failed_check_leaves_nothing(source: Path, tmp_path: Path) -> None:
    strict = tmp_path / "strict.toml"
    strict.write_text(
        'schema = 2\nname = "strict"\nextends = "llama"\n'
        "[check]\nfloat32 = { rtol = 1e-12, atol = 1e-12 }\n"
    )
    result = run(source, "-o", tmp_path / "out", "--check", "--recipe", strict)
    assert result.exit_code == 1
    assert "forward" in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"source", "strict.toml"}


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_interrupt_leaves_nothing(
    source: Path, tmp_path: Path, interruptible: Callable[[], None], kind: signal.Signals
) -> None:
    command = [sys.executable, "-m", "maxtool", "compile", str(source), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(kind)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert {path.name for path in tmp_path.iterdir()} == {"source"}


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams(source: Path, tmp_path: Path, closed: str) -> None:
    command = f"{sys.executable} -m maxtool compile {source} -o {tmp_path / 'out'} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "out").is_dir()) == (0, True)
    assert "Traceback" not in done.stderr


def test_what_the_system_refuses(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "out"))

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    result = run(source, "-o", tmp_path / "out")
    assert result.exit_code == 6
    assert "error: the system refuses: Permission denied" in result.stderr
    assert "Traceback" not in result.stderr


def test_more_positions_than_there_can_be(source: Path, tmp_path: Path) -> None:
    edit_config(source, max_position_embeddings=2**40)
    result = run(source, "-o", tmp_path / "out")
    assert result.exit_code == 4
    assert "context_length" in result.stderr
