"""Artifacts whose layers with windows keep no more than these: what they generate, and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from maxtool.runtime import loader
from maxtool.runtime.loader.session import Session
from tests.artifact.measure import BOUND, Compile, error

WINDOW = 7
MISTRAL = "tiny-mistral"
GREEDY = loader.TokenSampler(loader.Sampling())
TEXT = [5, 9, 2, 33, 41, 8, 8, 60, 17, 3, 25, 12]


@pytest.fixture(scope="module")
def folder(compiled: Compile, data: Path) -> Path:
    return compiled(data / MISTRAL)


def test_the_manifest_says_what_is_kept(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["kept_positions"] == WINDOW
    shapes = {spec["name"]: spec["shape"] for spec in manifest["state"]}
    assert {(shape[3] if "key" in name else shape[2]) for name, shape in shapes.items()} == {WINDOW}
    axes = {spec["name"].split(".")[-1]: spec["positions"] for spec in manifest["state"]}
    assert axes == {"key": 3, "value": 2}


@pytest.mark.parametrize("text", [TEXT, TEXT[:4], [*TEXT[:6], 1, 2], [1, 2, 3]])
def test_a_text_that_was_changed_is_read_anew(folder: Path, text: list[int]) -> None:
    """Generation has overwritten what it looks back at, even if it is the same text."""
    model = loader.load(folder)
    memory = Session(model)
    list(memory.generate(TEXT, 5, GREEDY))
    assert list(memory.generate(text, 5, GREEDY)) == list(Session(model).generate(text, 5, GREEDY))
    assert memory.reused == 0


def test_a_text_that_goes_on_is_not_read_again(folder: Path) -> None:
    model = loader.load(folder)
    memory = Session(model)
    text = [*TEXT, *memory.generate(TEXT, 5, GREEDY)]
    more = [*text, 4, 7, 11, 30, 2, 9, 9, 1]
    expected = list(Session(model).generate(more, 5, GREEDY))
    assert list(memory.generate(more, 5, GREEDY)) == expected
    assert memory.reused == len(text) - 1  # the last token was drawn, and never read


def test_a_short_text_may_be_changed_anywhere(folder: Path) -> None:
    model = loader.load(folder)
    memory = Session(model)
    list(memory.generate(TEXT[:4], 3, GREEDY))
    assert list(memory.generate([*TEXT[:3], 1], 5, GREEDY)) == list(
        Session(model).generate([*TEXT[:3], 1], 5, GREEDY)
    )
    assert memory.reused == 3


def test_a_position_that_looks_back_at_nothing_is_refused(folder: Path) -> None:
    model = loader.load(folder)
    state = model.new_state(batch=1)

    def read(name: str, ids: list[int], position: int) -> np.ndarray:
        arrays = {"input_ids": [ids], "position": np.array([position], np.int32)}
        return model.run(name, arrays, state)["logits"]

    last = read("prefill", TEXT, 0)
    assert error(read("decode", TEXT[-1:], len(TEXT) - 1), last) <= BOUND
    hold = f"hold the last {WINDOW} of 12 positions: nothing can be read at position 5"
    with pytest.raises(loader.DoesNotFit, match=hold):
        read("prefill", TEXT[5:], 5)
    np.testing.assert_array_equal(read("prefill", TEXT, 0), last)
