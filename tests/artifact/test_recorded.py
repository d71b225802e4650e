"""Outputs recorded for the machine that an artifact is for, and compared there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from maxtool import artifact
from maxtool.runtime import loader
from maxtool.runtime.loader.recorded_checks import FILE, PLAN
from tests.effort import thinned

# Another machine than this one, and yet one that this one is.
ELSEWHERE = "cpu:x86-64"


@pytest.fixture(scope="module", params=thinned(["tiny-llama", "tiny-bert"], "tiny-llama"))
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "model"
    source = Path(__file__).parents[1] / "data" / request.param
    asked = artifact.Request(source, folder, target=ELSEWHERE, check=True)
    report = artifact.make(artifact.prepare(asked))
    assert report.check is not None
    assert report.check.worst is None
    return folder


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "run.py"), "--check", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_machine_agrees(recorded: Path) -> None:
    done = run(recorded, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == "maxtool.check/1"
    assert result["passed"]
    assert 0 < result["relative_error"] < 1e-5
    names = {"prefill and decode", "embed, embeddings"}
    assert names & result["trials"].keys()
    assert "relative error" in run(recorded).stdout


def test_the_manifest_says_that_it_was_recorded(recorded: Path) -> None:
    check = loader.Manifest(recorded).root["check"]
    assert check["status"] == "recorded"
    assert check["tokens"] == 24


def test_another_output_is_told(recorded: Path, tmp_path: Path) -> None:
    changed = rewritten(recorded, tmp_path, lambda arrays: {"0": arrays["0"] + 1})
    done = run(changed, "--no-verify")
    assert done.returncode == 1
    assert "does not compute what was recorded" in done.stderr
    assert run(changed).returncode == 1  # the checksum


@pytest.mark.parametrize(
    "plan",
    thinned(["nonsense", "[]", '{"rtol": 1, "atol": 1, "trials": [{}]}', None], "nonsense", None),
)
def test_a_damaged_file_is_refused(recorded: Path, tmp_path: Path, plan: str | None) -> None:
    changed = rewritten(recorded, tmp_path, lambda _: {PLAN: np.array(plan)} if plan else {})
    if plan is None:
        (changed / FILE).write_bytes(b"no archive")
    done = run(changed, "--no-verify")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_what_was_not_recorded_cannot_be_checked(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "data" / "tiny-llama"
    artifact.make(artifact.prepare(artifact.Request(source, tmp_path / "model")))
    done = run(tmp_path / "model")
    assert done.returncode == 2
    assert "has no recorded outputs" in done.stderr


def rewritten(folder: Path, tmp_path: Path, change: object) -> Path:
    """A copy of an artifact with other recorded arrays."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.rglob("*"):
        place = copy / path.relative_to(folder)
        place.mkdir() if path.is_dir() else place.write_bytes(path.read_bytes())
    with np.load(folder / FILE) as archive:
        arrays = dict(archive)
    np.savez(copy / FILE, **(arrays | change(arrays)))  # type: ignore[operator]
    return copy
