"""Each kernel and each recipe once more, as on a CPU with fewer instructions than this one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.kernels.cpu import cpu_kernels
from maxtool.recipe import load_recipe
from tests import levels
from tests.effort import sampled

ROOT = Path(__file__).resolve().parents[1]
RECIPES = {
    file.stem: levels.test_of(file.stem, load_recipe(file.stem).architecture)
    for file in sorted(ROOT.glob("recipes/[!_]*.toml"))
}

COMPILED = [name for name in RECIPES.values() if name.startswith("artifact/")]
# What one process runs: starting one takes seconds, and they run beside each other.
PARTS = {
    "kernels": [*levels.KERNELS.values(), *levels.BESIDES],
    **{f"recipes {part}": COMPILED[part::4] for part in range(4)},
}


def test_every_kernel_and_every_recipe_has_a_test() -> None:
    kernels = {request.__name__ for request in cpu_kernels.kernels(cpu_target())}
    assert set(levels.KERNELS) == kernels, "tests/levels.py has the table"
    files = {name.partition("::")[0] for part in PARTS.values() for name in part}
    assert [file for file in files if not (ROOT / "tests" / file).is_file()] == []
    models = {name.partition("[")[2].rstrip("]") for name in RECIPES.values()}
    recorded = {file.name.partition(".")[0] for file in levels.DATA.glob("random/*.gz")}
    recorded |= {name for name in RECIPES if name in models}  # those of images, in one file
    assert [each for each in models - recorded if not (levels.DATA / each).is_dir()] == []


@pytest.mark.long
def test_each_of_these_tests_is_there() -> None:
    """A test's parameters may have changed since; without this, only what is slow would tell."""
    done = in_a_process({name for names in PARTS.values() for name in names}, "--collect-only")
    assert done.returncode == 0, done.stdout[-8000:]


def in_a_process(
    names: set[str], *options: str, level: levels.Level | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests by name in a process of their own, of a lesser CPU if one is given."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options, *sorted(f"tests/{name}" for name in names)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | (level.environment if level else {}),
    )


@pytest.mark.parametrize(
    ("cpu", "lesser"),
    [
        ("znver5", levels.V3),
        ("skylake-avx512", levels.V3),
        ("haswell", levels.V2),
        ("nehalem", None),
    ],
)
def test_a_cpu_with_longer_vectors_has_a_lesser_one(cpu: str, lesser: levels.Level | None) -> None:
    assert levels.below(cpu_target(f"cpu:{cpu}")) is lesser


@pytest.fixture(scope="module")
def level() -> levels.Level:
    """The next CPU below this one."""
    result = levels.below(cpu_target())
    if result is None:
        pytest.skip("there is no lesser CPU that this machine could be taken for")
    return result


def test_a_process_finds_itself_on_such_a_cpu(level: levels.Level) -> None:
    program = (
        "import numpy; from maxtool.compiler.cpu_target import cpu_target;"
        "found = numpy.show_config('dicts')['SIMD Extensions'].get('found', []);"
        "print(cpu_target().cpu, *found)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | level.environment,
    )
    cpu, *features = done.stdout.split()
    assert cpu == level.cpu
    assert not [name for name in features if name.startswith(level.numpy)]


@pytest.mark.slow
@pytest.mark.parametrize("part", sampled(PARTS, "kernels"))
def test_as_on_a_lesser_cpu(level: levels.Level, part: str) -> None:
    names = set(PARTS[part])
    done = in_a_process(names, level=level)
    assert done.returncode == 0, f"on {level.cpu}:\n{done.stdout[-8000:]}{done.stderr[-2000:]}"
    assert f"{len(names)} passed" in done.stdout, "a test that is skipped shows nothing"
