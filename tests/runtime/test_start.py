"""Imports of a process until the first token: each module is time that a user waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# What a model on a CPU needs to continue token ids.
NEEDED = {
    "consistency",
    "devices",
    "entries",
    "errors",
    "execution",
    "ffi",
    "host",
    "inputs",
    "machine",
    "manifest",
    "manifest_parser",
    "memory",
    "model",
    "narrow_floats",
    "processor",
    "sampling",
    "session",
    "slots",
    "specs",
    "text_entries",
    "tokens",
    "verified",
    "watched_files",
    "wrong_path",
}
# What tvm_ffi imports where it is installed, and what other uses of a model need.
HEAVY = {"torch", "cuda.bindings", "jinja2", "tokenizers", "numpy.random", "argparse", "tvm"}
CONTINUED = """
import json, sys
import run
list(run.load().generate([1, 5], max_tokens=3, **json.loads(sys.argv[1])))
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(folder: Path, code: str, *arguments: str) -> set[str]:
    """The modules that are imported when a program beside an artifact has ended."""
    paths = [folder, folder.parent / "installed"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def of_loader(modules: set[str]) -> set[str]:
    return {name.partition(".")[2] for name in modules if name.startswith("maxtool_loader_")} - {""}


@pytest.fixture
def installed(artifact: Path) -> Path:
    """A folder of packages as if frameworks were installed."""
    folder = artifact.parent / "installed"
    for package in ("torch", "cuda/bindings"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "cuda" / "bindings" / "driver.py").write_text("class CUstream: ...\n")
    return folder


@pytest.mark.usefixtures("installed")
def test_tokens_need_few_modules(artifact: Path) -> None:
    modules = modules_after(artifact, CONTINUED, "{}")
    assert of_loader(modules) == NEEDED
    assert not modules & HEAVY


@pytest.mark.usefixtures("installed")
def test_drawing_needs_random_numbers(artifact: Path) -> None:
    modules = modules_after(artifact, CONTINUED, '{"temperature": 1.0}')
    assert of_loader(modules) == NEEDED
    assert modules & HEAVY == {"numpy.random"}


@pytest.mark.parametrize("name", ["Conversation", "TextStream", "generate_many", "open_template"])
def test_the_rest_is_imported_when_it_is_named(artifact: Path, name: str) -> None:
    code = f"import json, sys\nfrom run import {name}\nprint(json.dumps(sorted(sys.modules)))"
    assert of_loader(modules_after(artifact, code)) > {"errors", "model"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("statements", "package"),
    [
        ("import run; run.load(); import torch", "torch"),
        ("import cuda.bindings.driver; import run; run.load()", "cuda.bindings.driver"),
    ],
)
def test_a_framework_can_be_used_beside_a_model(
    artifact: Path, statements: str, package: str
) -> None:
    code = f"import json, sys\n{statements}\nprint(json.dumps(sorted(sys.modules)))"
    assert package in modules_after(artifact, code)


def test_running_adds_no_files(artifact: Path) -> None:
    before = files(artifact)
    for arguments in (["--ids", "1,5"], ["--prompt", "Once"], ["--info"], ["--chat", "--ids", "1"]):
        subprocess.run(command(artifact, arguments), capture_output=True, check=False)
    assert files(artifact) == before


def command(artifact: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, str(artifact / "run.py"), *arguments]


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))
