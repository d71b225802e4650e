"""Installed from the checkout, as a copy or editable, maxtool works from any other folder.

Each virtual environment sees this one's packages through a .pth file, so that nothing is
downloaded; building and installing maxtool are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from maxtool import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "samples" / "fireside"
RECIPES = {file.name for file in (ROOT / "recipes").glob("*.toml")}
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
FROM_HERE = ("--no-deps", "--no-build-isolation")
KINDS = {"copy": (), "editable": ("--editable",)}

Run = Callable[..., subprocess.CompletedProcess[str]]


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without this environment's own import path; it must succeed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module", params=KINDS)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh virtual environment with maxtool in it."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    site = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    Path(site.stdout.strip(), "shared.pth").write_text(sysconfig.get_path("purelib"))
    call(python, *PIP, "install", *FROM_HERE, *KINDS[request.param], ROOT, cwd=folder)
    return python.parent


@pytest.fixture
def maxtool(installed: Path, tmp_path: Path) -> Run:
    """The console script, run from a folder that has nothing to do with the checkout."""
    return lambda *arguments: call(installed / "maxtool", *arguments, cwd=tmp_path)


def test_version(maxtool: Run) -> None:
    assert maxtool("--version").stdout == f"maxtool {__version__}\n"


def test_the_environment_runs_its_own_copy(installed: Path, tmp_path: Path) -> None:
    where = call(
        installed / "python", "-c", "import maxtool; print(maxtool.__file__)", cwd=tmp_path
    )
    editable = "editable" in str(installed)
    home = ROOT if editable else installed.parent
    assert Path(where.stdout.strip()).is_relative_to(home)


def test_inspect(maxtool: Run) -> None:
    result = json.loads(maxtool("inspect-weights", SAMPLE, "--json").stdout)
    assert result["total"]["tensors"] == 38


def test_recipes_are_found(maxtool: Run, tmp_path: Path) -> None:
    result = tmp_path / "fireside.gguf"
    planned = json.loads(maxtool("convert", SAMPLE, "-o", result, "--dry-run", "--json").stdout)
    assert planned["recipe"] == "llama"
    assert not result.exists()


def test_compiled_models_run(maxtool: Run, installed: Path, tmp_path: Path) -> None:
    result = tmp_path / "fireside"
    maxtool("compile", SAMPLE, "-o", result)
    options = ("--prompt", "Once upon a time", "--max-tokens", "12")
    told = call(installed / "python", result / "run.py", *options, cwd=tmp_path)
    story = (SAMPLE / "greedy.txt").read_text(encoding="utf-8")
    assert len(told.stdout.strip()) > 20
    assert story.startswith(told.stdout.strip())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, *PIP, "wheel", *FROM_HERE, "-w", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_its_recipes(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"maxtool-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"maxtool", info}
    assert {Path(name).name for name in names if name.startswith("maxtool/recipes/")} == RECIPES
    assert {
        "maxtool/py.typed",
        "maxtool/runtime/run.py",
        "maxtool/runtime/loader/model.py",
        f"{info}/licenses/LICENSE",
    } <= names


def test_the_wheel_holds_every_module_and_no_tests(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    assert held == {file.relative_to(ROOT).as_posix() for file in (ROOT / "maxtool").rglob("*.py")}


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (packed,) = tmp_path.glob("*.tar.gz")
    call(sys.executable, *PIP, "wheel", *FROM_HERE, "-w", tmp_path, packed, cwd=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
