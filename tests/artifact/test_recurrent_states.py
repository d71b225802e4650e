"""Artifacts with layers whose state is of all tokens: texts in turn, in slots and continued."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from maxtool import artifact
from maxtool.errors import ConfigurationError
from maxtool.runtime import loader
from maxtool.runtime.loader.continued_text import Text
from maxtool.runtime.loader.session import Session
from maxtool.runtime.loader.side_by_side import SideBySide
from tests.artifact.measure import Compile
from tests.variants.rows import Files, rows

SLOTS = 3
GREEDY = loader.TokenSampler(loader.Sampling())
TEXT = [5, 9, 2, 3, 1, 8, 8, 7, 4, 3, 6, 2]
PROMPTS = [TEXT, [4], TEXT[:5], [1, 2, 3], TEXT, [7, 7, 7, 7, 7, 7], TEXT[:5]]
DRAWN = loader.Sampling(temperature=1.2, top_k=9, seed=11)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of LFM2 with layers of both kinds."""
    mixed = (row for row in rows("lfm2") if len({*row.config["layer_types"]}) > 1)
    return Files(tmp_path_factory.mktemp("source")).checkpoint(next(mixed)).path


@pytest.fixture(scope="module")
def model(compiled: Compile, source: Path) -> loader.Model:
    return loader.load(compiled(source))


@pytest.fixture(scope="module")
def slotted(compiled: Compile, source: Path) -> loader.Model:
    return loader.load(compiled(source, batch=SLOTS))


def alone(model: loader.Model, ids: list[int], count: int = 6) -> list[int]:
    return list(Session(model).generate(ids, count, GREEDY))


@pytest.mark.long
def test_check_passes(source: Path, tmp_path: Path) -> None:
    request = artifact.Request(source, tmp_path / "out", check=True, batch=SLOTS)
    artifact.make(artifact.prepare(request))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["is_recurrent"] is True
    fixed = {spec["name"] for spec in manifest["state"] if "positions" not in spec}
    assert (
        fixed == {spec["name"] for spec in manifest["state"] if "inputs" in spec["name"]} != set()
    )


@pytest.mark.parametrize("text", [TEXT, TEXT[:4], [*TEXT[:6], 1, 2], [1, 2, 3]])
def test_a_text_that_was_changed_is_read_anew(model: loader.Model, text: list[int]) -> None:
    memory = Session(model)
    list(memory.generate(TEXT, 5, GREEDY))
    assert list(memory.generate(text, 6, GREEDY)) == alone(model, text)
    assert memory.reused == 0


def test_a_text_that_goes_on_is_not_read_again(model: loader.Model) -> None:
    memory = Session(model)
    text = [*TEXT, *memory.generate(TEXT, 5, GREEDY)]
    more = [*text, 4, 7, 1]
    assert list(memory.generate(more, 6, GREEDY)) == alone(model, more)
    assert memory.reused == len(text) - 1  # the last token was drawn, and never read


@pytest.mark.parametrize("position", [3, len(TEXT) - 1, len(TEXT) + 1])
def test_only_the_end_and_the_beginning_are_read_at(model: loader.Model, position: int) -> None:
    state = model.new_state(batch=1)

    def read(ids: list[int], first: int) -> np.ndarray:
        arrays = {"input_ids": [ids], "position": np.array([first], np.int32)}
        return model.run("prefill", arrays, state)["logits"]

    before = read(TEXT, 0)
    with pytest.raises(loader.DoesNotFit, match=f"12 tokens.*read at position {position}"):
        read([1], position)
    read([1, 2], len(TEXT))
    np.testing.assert_array_equal(read(TEXT, 0), before)


@pytest.mark.parametrize("sampling", [loader.Sampling(), DRAWN])
def test_texts_side_by_side_are_those_alone(
    model: loader.Model, slotted: loader.Model, sampling: loader.Sampling
) -> None:
    """More texts than slots: each slot has held another text before."""
    prompts = [loader.Prompt(ids, 5 + i, sampling) for i, ids in enumerate(PROMPTS)]
    expected = {one.index: one.ids for one in loader.generate_many(model, prompts)}
    assert {one.index: one.ids for one in loader.generate_many(slotted, prompts)} == expected


@pytest.mark.parametrize("chunk", [2, 100])
def test_slots_that_remember(model: loader.Model, slotted: loader.Model, chunk: int) -> None:
    """Equal texts are read once, one that goes on is not read again, others from the start."""
    places = SideBySide(slotted, remembers=True, chunk=chunk)

    def ran(*prompts: list[int]) -> list[Text]:
        texts = [Text(slotted, i, loader.Prompt(ids, 6)) for i, ids in enumerate(prompts)]
        for text in texts:
            places.begin(text)
        while places.running:
            places.step()
            for text in [one for one in places.running if one.is_over]:
                places.end(text)
        for text, ids in zip(texts, prompts, strict=True):
            made = alone(model, ids)
            assert text.ids[len(ids) :] == made[: len(text.ids) - len(ids)]
            assert len(text.ids) == len(ids) + len(made)
        return texts

    first, second, third = ran(TEXT, TEXT[:5], TEXT)
    assert (first.reused, second.reused, third.reused) == (0, 0, len(TEXT))
    held = first.ids[: first.read]
    longer, changed = ran([*held, 3, 1], [*held[:-2], 3, 1])
    assert longer.reused == len(held)
    assert changed.reused == 0


def test_several_devices_are_refused(source: Path, tmp_path: Path) -> None:
    request = artifact.Request(source, tmp_path / "out", devices=2)
    with pytest.raises(ConfigurationError, match="split over 2 devices") as error:
        artifact.prepare(request)
    assert any("keep a state of fixed size" in line for line in error.value.problems)
