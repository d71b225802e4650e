"""The two walks of docs/architecture.md, gone with the code that they describe."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np
from typer.testing import CliRunner

from maxtool.cli.app import app
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, TensorType, TensorValue, ops
from maxtool.nn import Module
from maxtool.recipe import find_recipe, plan
from maxtool.weights import open_checkpoint

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "maxtool"
MAP = ROOT / "docs" / "architecture.md"
STEP = re.compile(r"^\d+\. `([\w/]+\.py)`, `([\w.]+)`:", re.MULTILINE)


class Step(NamedTuple):
    """A function, by its file below ``maxtool/`` and its qualified name."""

    file: str
    function: str


def walk(title: str) -> list[Step]:
    """Return the steps of the walk whose heading holds the title."""
    sections = re.split(r"^## ", MAP.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (section,) = [section for section in sections if title in section.splitlines()[0]]
    steps = [Step(*step) for step in STEP.findall(section)]
    assert len(steps) > 5, "the walk's steps are not written as the pattern wants them"
    return steps


@contextmanager
def watched(calls: list[Step]) -> Iterator[None]:
    """Note each function of the package when any thread calls it for the first time."""
    seen = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            seen.add(code)
            file = Path(code.co_filename)
            if file.is_relative_to(PACKAGE):
                calls.append(Step(file.relative_to(PACKAGE).as_posix(), code.co_qualname))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def run(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output


def check_order(steps: list[Step], calls: list[Step]) -> None:
    assert not [step for step in steps if step not in calls]
    assert [call for call in calls if call in steps] == steps


def test_the_parameter_of_the_walk_is_one_of_the_model() -> None:
    checkpoint = open_checkpoint(ROOT / "samples" / "fireside")
    (name,) = re.findall(r"whose parameter is called `(.+?)`", MAP.read_text(encoding="utf-8"))
    assert name in plan(find_recipe(checkpoint), checkpoint).parameters


def test_from_a_gguf_file_to_the_weights_of_an_artifact(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    run("convert", ROOT / "samples" / "fireside", "-o", file)
    calls: list[Step] = []
    with watched(calls):
        run("compile", file, "-o", tmp_path / "model")
    check_order(walk("a tensor's name"), calls)


class Softmax(Module):
    """A module of one operation."""

    def __call__(self, x: TensorValue) -> TensorValue:
        return ops.softmax(x)


def test_from_a_module_to_a_kernel() -> None:
    calls: list[Step] = []
    with watched(calls):
        compiled = Softmax().compile(TensorType(DType.float32, ["batch", 10], DeviceRef.CPU()))
        result = compiled(np.zeros((2, 10), np.float32))
    assert np.allclose(result.to_numpy(), 0.1)
    check_order(walk("ops.softmax"), calls)
