"""Files that change while a model is in memory, and what is left of a model that is not."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from maxtool.runtime import loader

sys.path.insert(0, str(Path(__file__).parent))
from tiny_artifact import PROMPT, fails

# In a process of its own, as a page that is gone ends it.
CUT = """
import os, sys
from pathlib import Path
from maxtool.runtime import loader
folder, name, how = sys.argv[1:]
path = Path(folder, name)
model = loader.load(folder)
tokens = model.generate([1, 2, 3], 20)
next(tokens)
if how == "cut":
    os.truncate(path, 0)
elif how == "grown":
    path.open("ab").write(bytes(64))
else:
    data = path.read_bytes()
    path.write_bytes(data[::-1])
for call in (lambda: next(tokens), lambda: model(input_ids=[[1]]), lambda: model.generate([1], 2)):
    try:
        made = call()
        list(made) if hasattr(made, "__next__") else made
    except loader.BadInput as error:
        print(error.exit_code, error.file == str(path.resolve()), error)
"""


def changed(folder: Path, name: str, how: str) -> list[str]:
    """Return the messages of calls after a file was changed."""
    command = [sys.executable, "-c", CUT, str(folder), name, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("how", ["cut", "grown", "rewritten"])
def test_weights_that_change_are_noticed_before_a_call(artifact: Path, how: str) -> None:
    said = changed(artifact, "weights.bin", how)
    assert len(said) == 3
    assert all("changed after the model was loaded" in line for line in said)
    assert all(line.startswith("3 True ") for line in said)


@pytest.mark.parametrize("how", ["cut", "grown", "rewritten"])
def test_code_that_changes_disturbs_nobody(artifact: Path, how: str) -> None:
    assert changed(artifact, "model.so", how) == []


def test_a_folder_that_is_replaced_disturbs_nobody(artifact: Path) -> None:
    model = loader.load(artifact)
    before = list(model.generate([1, 2, 3], 5))
    copy = artifact.with_name("copy")
    shutil.copytree(artifact, copy)
    artifact.rename(artifact.with_name("old"))
    copy.rename(artifact)
    assert list(model.generate([1, 2, 3], 5)) == before
    shutil.rmtree(artifact)
    assert list(model.generate([1, 2, 3], 5)) == before


def test_a_tokenizer_that_changes_before_it_is_read(artifact: Path) -> None:
    model = loader.load(artifact)
    with (artifact / "tokenizer.json").open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(loader.BadInput, match=r"changed after .*tokenizer\.json"):
        model.encode(PROMPT)


@pytest.mark.parametrize("name", ["model.so", "tokenizer.json"])
def test_a_file_that_was_cut_is_not_loaded(artifact: Path, name: str) -> None:
    size = (artifact / name).stat().st_size
    os.truncate(artifact / name, size - 100)
    fails(artifact, 1, "--prompt", PROMPT, says=f"it had {size} bytes and has {size - 100}")


def test_weights_that_were_cut_are_never_mapped(artifact: Path) -> None:
    os.truncate(artifact / "weights.bin", 4000)
    for options in ([], ["--no-verify"]):
        fails(artifact, 3, "--ids", "1", *options, says="weights.bin was cut short: ")


@pytest.mark.long
def test_a_model_leaves_nothing_behind(artifact: Path) -> None:
    """Leak neither memory nor files: of 200 models, less than a tenth of one model's code."""

    def once() -> None:
        model = loader.load(artifact)
        list(model.generate([1, 2, 3], 3))

    def size() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    for _ in range(20):
        once()
    before, files = size(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(200):
        once()
    assert (size() - before) / 200 < 16_000
    assert len(os.listdir("/proc/self/fd")) == files  # noqa: PTH208
    assert str(artifact) not in Path("/proc/self/maps").read_text()
