"""The same input gives the same bytes: in another folder, process, time zone, language, umask."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.folders import contents

ROOT = Path(__file__).resolve().parents[2]
# One recipe of each kind, which are made of other kernels, rules and files.
DIFFERENT = ("tiny-bert", "tiny-falcon-new", "tiny-gemma3", "tiny-gpt2", "tiny-qwen3-moe")


@dataclass(frozen=True)
class User:
    """Differences between people who make the same artifact.

    Attributes:
        prefix: Of the names of the source folders.
        environment: What their processes hash by, their time and their language.
        umask: What others may do with their files.
        step: In which order they take the sources.
    """

    prefix: str
    environment: Mapping[str, str]
    umask: int
    step: int


USERS = (
    User("a", {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C", "USER": "a"}, 0o022, 1),
    User(
        "another model",
        {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8", "USER": "b"},
        0o077,
        -1,
    ),
)

# What is made of every folder: an artifact, both formats, and one of them from the other.
MAKE = """
import sys
from pathlib import Path
from maxtool import artifact, conversion
from maxtool.errors import ModelMismatch
sources, output, target, step = sys.argv[1:]
for folder in sorted(Path(sources).iterdir())[:: int(step)]:
    place = Path(output, folder.name.partition("@")[2])
    artifact.make(artifact.prepare(artifact.Request(folder, place, target=target)))
    for source, end in ((folder, ".gguf"), (folder, ".hf"), (Path(f"{place}.gguf"), ".back")):
        try:
            request = conversion.Request(source, Path(f"{place}{end}"), sha256=True)
            conversion.convert(conversion.prepare(request))
        except ModelMismatch as error:  # not everything has a form in GGUF
            Path(f"{place}{end}.refused").write_text(str(error))
            break
"""


def made_by(user: User, target: str, sources: list[Path], scratch: Path) -> dict[str, bytes]:
    """Return the files that a user makes of copies of some folders."""
    copies, output = scratch / user.prefix / "sources", scratch / user.prefix / "out"
    for source in sources:
        shutil.copytree(source, copies / f"{user.prefix}@{source.name}")
    for folder in (output, home := scratch / user.prefix / "home"):
        folder.mkdir()
    own = {**user.environment, "HOME": str(home), "TMPDIR": str(home)}
    subprocess.run(
        [sys.executable, "-c", MAKE, str(copies), str(output), target, str(user.step)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **own},
        cwd=home,
        umask=user.umask,
        check=True,
    )
    return contents(output)


def compare(target: str, sources: list[Path], scratch: Path) -> None:
    """Run both users, and compare file by file."""
    with ThreadPoolExecutor(len(USERS)) as pool:
        jobs = [pool.submit(made_by, user, target, sources, scratch) for user in USERS]
        first, second = (job.result() for job in jobs)
    assert {"model.so", "weights.bin", "config.json"} <= {Path(name).name for name in first}
    assert first.keys() == second.keys()
    first, second = (without_cubins(files) for files in (first, second))
    assert [name for name in first if first[name] != second[name]] == []
    words = {str(scratch), *(user.prefix for user in USERS[1:])}
    manifests = [str(data) for name, data in first.items() if name.endswith("manifest.json")]
    assert manifests
    assert [word for word in words for manifest in manifests if word in manifest] == []


def without_cubins(files: Mapping[str, bytes]) -> dict[str, object]:
    """Return the files without machine code for GPUs, and what manifests say of it.

    In 4 of 40 processes nvrtc 13.5 made another PTX of the same source, with one thread.
    """
    result: dict[str, object] = {}
    for name, data in files.items():
        if name.endswith("manifest.json"):
            content = json.loads(data)
            kept = {k: v for k, v in content["files"].items() if not k.endswith(".cubin")}
            if len(kept) < len(content["files"]):
                del content["manifest_sha256"], content["kernels"]
            result[name] = {**content, "files": kept}
        elif not name.endswith(".cubin"):
            result[name] = data
    return result


@pytest.mark.long
def test_one_model(data: Path, tmp_path: Path) -> None:
    compare("cpu:x86-64-v2", [data / "tiny-llama"], tmp_path)


@pytest.mark.explored
@pytest.mark.slow
def test_many_recipes(data: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each user in one process, so that what came before is different too."""
    every = sorted(path.parent for path in data.glob("tiny-*/config.json"))
    assert {name for name in DIFFERENT if not (data / name).is_dir()} == set()
    all_of_them = request.config.getoption("--everything")
    sources = [path for path in every if all_of_them or path.name in DIFFERENT]
    compare("cpu:x86-64-v3", sources, tmp_path)


@pytest.mark.explored
@pytest.mark.skipif(find_spec("nvidia.cu13") is None, reason="needs the extra cuda")
def test_gpus(data: Path, tmp_path: Path) -> None:
    sources = [data / name for name in ("tiny-llama", "tiny-qwen3-moe", "tiny-bert")]
    compare("cuda:sm_80,sm_90", sources, tmp_path)
