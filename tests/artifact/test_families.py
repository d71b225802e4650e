"""Every family of decoders, compiled and run: what transformers computes, from both dialects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from maxtool import artifact
from maxtool.dtype import DType
from maxtool.recipe import find_recipe, plan
from maxtool.weights import open_checkpoint
from tests.artifact.measure import bound, error, greedy, logits, recorded
from tests.effort import sampled, thinned
from tests.parity.measure import CONVERTED, DATA, FOLDERS, UNSAID

# It has norms around and of heads, two rotary bases and windows; the others take long.
QUICK = "tiny-gemma3"
# One of each form of attention and of feed-forward layers; the others are compiled as they are.
OPTIMISED = (
    QUICK,
    "tiny-llama",
    "tiny-falcon",
    "tiny-gpt2",
    "tiny-phi3-longrope",
    "tiny-qwen3-moe",
)
NEWER = tuple(name for name in FOLDERS if (DATA / name / "config.newer.json").exists())


def checked(source: Path, output: Path) -> float:
    """Compile with ``--check``; the relative error that it found."""
    request = artifact.Request(source, output, check=True, kv_dtype=DType.float32)
    result = artifact.make(artifact.prepare(request)).check
    assert result is not None
    return result.worst.relative_error


def assert_as_recorded(compiled: Path, folder: Path) -> None:
    expected = recorded(folder)
    assert error(logits(compiled, expected["input_ids"]), expected["logits"]) <= bound(folder)
    tokens = expected["greedy_tokens"][0].tolist()
    assert greedy(compiled, expected["greedy_prompt"], len(tokens)) == tokens


@pytest.mark.sampled
@pytest.mark.parametrize("name", thinned(FOLDERS, QUICK))
def test_a_folder_computes_what_was_recorded(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name in OPTIMISED:
        request.getfixturevalue("optimised")
    assert checked(DATA / name, tmp_path / "out") <= bound(DATA / name)
    assert_as_recorded(tmp_path / "out", DATA / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(CONVERTED))
def test_a_converted_file_computes_what_was_recorded(name: str, tmp_path: Path) -> None:
    """llama.cpp's converter made the file; what it does not write only ``--check`` knows about."""
    assert checked(DATA / name / f"{name}-f32.gguf", tmp_path / "out") <= bound(DATA / name)
    if name not in UNSAID:
        assert_as_recorded(tmp_path / "out", DATA / name)


@pytest.mark.parametrize("name", NEWER)
def test_both_spellings_plan_the_same(name: str, tmp_path: Path) -> None:
    copy = tmp_path / name
    shutil.copytree(DATA / name, copy)
    shutil.copy(copy / "config.newer.json", copy / "config.json")
    older, newer = (open_checkpoint(folder) for folder in (DATA / name, copy))
    result = plan(find_recipe(newer), newer)
    result.check()
    assert result.config == plan(find_recipe(older), older).config
