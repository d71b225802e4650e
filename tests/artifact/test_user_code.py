"""Files of users that misbehave: each ends in one message, and none in a traceback."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.artifact.test_modules import compiling

HEAD = """
from maxtool.nn import Linear, Module

class Net(Module):
    def __init__(self):
        self.inner = Linear(4, 4)
    def forward(self, x):
        return self.inner(x)
"""
NO_TEXT = "class E(Exception):\n    def __str__(self): raise RuntimeError\n"

MISBEHAVING: dict[str, tuple[str, str, str]] = {
    "an exception without text": (
        f"{NO_TEXT}raise E()",
        "mine.py raises E: its text cannot be had, as __str__ raises RuntimeError",
        "mine.py, line 3, in <module>: raise E()",
    ),
    "an exception of the widest class": (
        "class E(BaseException): pass\nraise E('mine')",
        "mine.py raises E: mine",
        "line 2",
    ),
    "an attribute of the file": (
        "def __getattr__(name): raise ValueError(name)",
        "Net raises ValueError",
        "line 1",
    ),
    "the types raise": (
        HEAD + "    def input_types(self): raise ValueError('mine')",
        "Net.input_types raises ValueError: mine",
        "line 9",
    ),
    "the types are a number": (
        HEAD + "    def input_types(self): return 5",
        "Net.input_types does not return a list of TensorType",
        "",
    ),
    "the types are texts": (
        HEAD + "    def input_types(self): return ['x']",
        "Net.input_types does not return a list of TensorType",
        "",
    ),
    "an attribute of the module": (
        HEAD + "    def __getattr__(self, name): raise ValueError(name)",
        "Net.input_types raises ValueError: input_types",
        "line 9",
    ),
    "a signature": (
        HEAD + "    forward.__signature__ = 5",
        "Net.forward raises TypeError",
        "",
    ),
    "a file without a name for its line": (
        "raise SyntaxError('mine')",
        "mine.py raises SyntaxError: mine",
        "mine.py, line 1, in <module>",
    ),
    "a long text": ("raise ValueError('x' * 999)", f"ValueError: {'x' * 300}...", "line 1"),
    "too deep": (
        "def deeper(): deeper()\ndeeper()",
        "mine.py raises RecursionError",
        "lines are left out)",
    ),
}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    save_file({"inner.weight": np.eye(4, dtype=np.float32)}, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize("case", MISBEHAVING)
def test_a_file_that_misbehaves(tmp_path: Path, weights: Path, case: str) -> None:
    text, says, where = MISBEHAVING[case]
    (tmp_path / "mine.py").write_text(text)
    done = compiling(
        f"{tmp_path / 'mine.py'}:Net", "--weights", weights, "-o", tmp_path / "out", "--json"
    )
    assert done.exit_code == 4, done.output
    error = json.loads(done.stdout)["error"]
    assert says in error["what"]
    assert where in " ".join(error["problems"])
    assert len(error["problems"]) < 10
    assert "None" not in " ".join(error["problems"])


def test_a_property_that_raises(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"{HEAD}\n    @property\n    def other(self): raise ValueError('mine')\n"
    )
    options = ("--weights", weights, "--entry", "other", "-o", tmp_path / "out")
    done = compiling(f"{tmp_path / 'mine.py'}:Net", *options)
    assert done.exit_code == 4
    assert "Net.other raises ValueError: mine" in done.stderr


INPUT = ("--input", "x=float32[n,4]")


def test_imports_from_the_folder_while_it_is_traced(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "beside_the_users.py").write_text("factor = 2.0\n")
    (tmp_path / "mine.py").write_text(
        f"{HEAD}    def scaled(self, x):\n"
        "        from beside_the_users import factor\n"
        "        return self.inner(x) * factor\n"
    )
    before = sys.path, list(sys.path)
    done = compiling(
        f"{tmp_path / 'mine.py'}:Net", "--weights", weights, *INPUT, "--entry", "scaled",
        "-o", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (sys.path, list(sys.path)) == before
    assert not (tmp_path / "__pycache__").exists()
    sys.modules.pop("beside_the_users")


def test_a_method_without_results(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}    def nothing(self, x): return None\n")
    options = ("--weights", weights, *INPUT, "--entry", "nothing", "-o", tmp_path / "out")
    done = compiling(f"{tmp_path / 'mine.py'}:Net", *options)
    assert done.exit_code == 4
    assert "error: Net.nothing returns no tensor\n" in done.stderr


def test_a_method_of_any_number_of_inputs(tmp_path: Path, weights: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}    def star(self, *xs): return xs[0]\n")
    options = ("--weights", weights, *INPUT, "--entry", "star", "-o", tmp_path / "out")
    done = compiling(f"{tmp_path / 'mine.py'}:Net", *options)
    assert done.exit_code == 2
    assert "it takes *xs (which cannot have named inputs)" in done.stderr


@pytest.mark.long
def test_stdout_is_for_data_alone(tmp_path: Path, weights: Path) -> None:
    prints = (
        "print('python')",
        "sys.__stdout__.write('original\\n')",
        "os.write(1, b'descriptor\\n')",
        "subprocess.run([sys.executable, '-c', 'print(5 * 5)'])",
    )
    body = "".join(f"        {line}\n" for line in prints)
    (tmp_path / "mine.py").write_text(
        f"import os, subprocess, sys\n{HEAD}    def prints(self, x):\n{body}        return x\n"
    )
    command = [sys.executable, "-m", "maxtool", "compile", f"{tmp_path / 'mine.py'}:Net"]
    command += ["--weights", str(weights), *INPUT, "--entry", "prints", "--dry-run", "--json"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "out")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["schema"] == "maxtool.compile/1"
    assert {"python", "original", "descriptor", "25"} <= {*done.stderr.splitlines()}


@pytest.mark.parametrize("change", ["sys.path.clear()", "sys.path = 5", "sys.path.pop(0)"])
def test_a_file_that_changes_the_path_of_imports(
    tmp_path: Path, weights: Path, change: str
) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}\nimport sys\n{change}\nraise ValueError\n")
    before = list(sys.path)
    done = compiling(f"{tmp_path / 'mine.py'}:Net", "--weights", weights, "-o", tmp_path / "out")
    assert (done.exit_code, sys.path) == (4, before)


def test_the_digest_is_that_of_what_was_executed(tmp_path: Path, weights: Path) -> None:
    file, text = (
        tmp_path / "mine.py",
        f"{HEAD}\nimport pathlib\npathlib.Path(__file__).write_text('edited')\n",
    )
    file.write_text(text)
    out = tmp_path / "out"
    done = compiling(f"{file}:Net", "--weights", weights, *INPUT, "-o", out)
    assert done.exit_code == 0, done.output
    source = json.loads((out / "manifest.json").read_text())["build"]["sources"]["mine.py"]
    assert source == {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
