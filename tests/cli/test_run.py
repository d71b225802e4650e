"""``maxtool run`` does what the artifact's own program does."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from maxtool.cli import app as table
from maxtool.cli.run import run as command

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
import tiny_artifact
from tiny_artifact import PROMPT, STORY


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = tiny_artifact.compile_module(tmp_path_factory.mktemp("module"))
    folder = tmp_path_factory.mktemp("run") / "artifact"
    prompt, whole = tiny_artifact.encode(PROMPT), tiny_artifact.encode(PROMPT + STORY)
    tiny_artifact.make(folder, module, [*whole[len(prompt) :], tiny_artifact.EOS], len(prompt))
    return folder


@pytest.fixture(scope="module")
def cli() -> typer.Typer:
    if "run" not in {entry.name for entry in table.app.registered_commands}:
        table.command("run", command)
    if len(table.app.registered_commands) < 2:
        table.command("run-again", command)
    return table.app


def test_the_same_as_the_program(artifact: Path, cli: typer.Typer) -> None:
    done = CliRunner().invoke(cli, ["run", str(artifact), "--prompt", PROMPT])
    program = tiny_artifact.run(artifact, "--prompt", PROMPT)
    assert done.exit_code == 0, done.output
    assert done.stdout == program.stdout == f"{PROMPT}{STORY}\n"
    assert "tokens/s" in done.stderr


def test_lines_as_they_come(artifact: Path, cli: typer.Typer) -> None:
    words = ["--prompt", PROMPT, "--json-stream"]
    done = CliRunner().invoke(cli, ["run", str(artifact), *words])
    program = tiny_artifact.run(artifact, *words)
    assert done.exit_code == 0, done.output
    *tokens, last = map(json.loads, done.stdout.splitlines())
    *expected, _ = map(json.loads, program.stdout.splitlines())
    assert tokens == expected
    assert last["schema"] == "maxtool.token_stream/1"


def test_arrays(artifact: Path, cli: typer.Typer, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", input_ids=[[1, 2]])
    arguments = ["run", str(artifact), "--inputs", str(tmp_path / "x.npz"), "--json"]
    done = CliRunner().invoke(cli, [*arguments, "--output", str(tmp_path / "y.npz")])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["outputs"]["logits"]["shape"] == [1, 2, tiny_artifact.VOCAB]
    assert (tmp_path / "y.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--ids", "99999"], 4),
        (["--ids", "1,x"], 2),
        ([], 2),
        (["--prompt", "a", "--ids", "1"], 2),
        (["--inputs", "nowhere.npz"], 3),
        (["--ids", "1", "--temperature", "-3"], 2),
        (["--chat", "--prompt", "a", "--chat-template-kwargs", "[]"], 2),
        (["--chat", "--prompt", "a"], 4),
    ],
)
def test_exit_codes(artifact: Path, cli: typer.Typer, arguments: list[str], code: int) -> None:
    done = CliRunner().invoke(cli, ["run", str(artifact), *arguments])
    assert done.exit_code == code, done.output
    assert "error: " in done.stderr


def test_a_changed_file(artifact: Path, cli: typer.Typer, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(artifact, tmp_path / "copy")
    with (tmp_path / "copy" / "weights.bin").open("ab") as stream:
        stream.write(b"x")
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "copy"), "--ids", "1"])
    assert done.exit_code == 1
    assert "weights.bin" in done.stderr
    done = CliRunner().invoke(cli, ["run", str(tmp_path), "--ids", "1"])
    assert done.exit_code == 3


def test_the_command_imports_nothing_heavy() -> None:
    code = "import sys, maxtool.cli.run; print([m for m in ('numpy', 'tvm', 'tokenizers') if m in sys.modules])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_module_is_named_as_the_table_needs() -> None:
    assert importlib.import_module("maxtool.cli.run").run is command
