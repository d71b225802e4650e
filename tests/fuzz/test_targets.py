"""Damaged inputs of every format are read or refused: soon, in little memory, by errors of ours."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from harness import NEXT, OURS, Target
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import mutate

from tests.effort import examples

HERE = Path(__file__).parent
# Bytes of each seed that are damaged; fewer where reading takes milliseconds.
MANY, FEW = examples(60, 1000), examples(30, 100)
MOST = {
    "safetensors": MANY,
    "gguf": MANY,
    "npz": MANY,
    "pytorch": MANY,
    "wav": FEW,
    "onnx": MANY,
    "manifest": MANY,
    "config": FEW,
    "recipe": FEW,
    "tokenizer": FEW,
}


def target_of(name: str) -> Target:
    target: Target = importlib.import_module(f"fuzz_{name}").TARGET
    return target


def test_every_target_is_tested() -> None:
    assert {path.stem for path in HERE.glob("fuzz_*.py")} == {f"fuzz_{name}" for name in MOST}


@pytest.mark.parametrize("name", MOST)
def test_seeds_are_read(name: str) -> None:
    for seed in target_of(name).seeds():
        target_of(name).read(seed)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("name", MOST)
def test_truncation_and_changes_at_every_byte(name: str) -> None:
    command = [sys.executable, "-c", f"import damage; damage.main({name!r}, {MOST[name]})"]
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    tried, read = map(int, done.stdout.split())
    assert tried >= 3 * FEW
    assert 0 < read < tried


@pytest.mark.parametrize("name", MOST)
def test_changes_that_keep_the_structure(name: str) -> None:
    target = target_of(name)

    @settings(max_examples=examples(50, 150), deadline=None)
    @given(st.sampled_from(target.seeds()), st.integers(0), st.integers(1, 3))
    def changed(data: bytes, seed: int, times: int) -> None:
        random = Random(seed)
        for _ in range(times):
            data = mutate(data, NEXT, random)
        try:
            target.read(data)
        except OURS as error:
            assert str(error)

    changed()
