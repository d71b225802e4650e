"""Prompts read in pieces beside other texts, and prompts of several texts read once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from maxtool import artifact
from maxtool.runtime import loader
from maxtool.runtime.loader.continued_text import Text
from maxtool.runtime.loader.side_by_side import LEAST, SideBySide

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 8
LONG = [5 + 7 * i % 200 for i in range(60)]


class Counting:
    """Places whose calls are noted: of each the entry, and the tokens that it reads."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.model = loader.load(folder)
        self.places = SideBySide(self.model, remembers=True, **options)
        self.calls: list[tuple[str, int]] = []
        run = self.model.run

        def noting(name: str, arrays: Any, state: Any = None) -> Any:
            self.calls.append((name, sum(map(len, arrays["input_ids"]))))
            return run(name, arrays, state)

        self.model.run = noting  # type: ignore[method-assign]

    def begin(self, ids: Sequence[int], count: int = 6, **sampling: Any) -> Text:
        text = Text(self.model, 0, loader.Prompt(ids, count, loader.Sampling(**sampling)))
        self.places.begin(text)
        return text

    def step(self) -> None:
        """Make a token of each text, and free the places of those that are over."""
        self.places.step()
        for text in self.places.running:
            if text.is_over:
                self.places.end(text)

    def finish(self) -> None:
        for _ in range(200):
            if not self.places.running:
                return
            self.step()
        raise AssertionError("the texts do not end")

    @property
    def read(self) -> int:
        """The tokens of prompts that were read."""
        return sum(count for name, count in self.calls if name == "prefill")


def alone(folder: Path, ids: Sequence[int], count: int = 6, **sampling: Any) -> list[int]:
    prompt = loader.Prompt(ids, count, loader.Sampling(**sampling))
    (completion,) = loader.generate_many(loader.load(folder), [prompt])
    return list(completion.ids)


def test_others_go_on_while_a_long_prompt_is_read(folders: dict[str, Path]) -> None:
    counting = Counting(folders["several"], chunk=CHUNK)
    short = counting.begin([5, 6, 7], 30)
    counting.step()
    long, late = counting.begin(LONG), counting.begin([9, 8, 7, 6])
    while not long.reply.made:
        before = len(short.reply.made), counting.read
        counting.step()
        assert len(short.reply.made) == before[0] + 1
        assert counting.read <= before[1] + CHUNK
        assert late.reply.made or not long.read > 2 * CHUNK, "what is short does not wait for it"
    counting.finish()
    assert counting.read == 3 + 4 + len(LONG)
    for text, ids, count in ((short, [5, 6, 7], 30), (long, LONG, 6), (late, [9, 8, 7, 6], 6)):
        assert text.reply.made == alone(folders["several"], ids, count)


@pytest.mark.parametrize("chunk", [CHUNK, 1000])
def test_one_prompt_of_several_texts_is_read_once(folders: dict[str, Path], chunk: int) -> None:
    counting = Counting(folders["several"], chunk=chunk)
    texts = [counting.begin(LONG, temperature=1.0, seed=seed) for seed in range(4)]
    counting.finish()
    assert counting.read == len(LONG)
    expected = [alone(folders["several"], LONG, temperature=1.0, seed=seed) for seed in range(4)]
    assert [text.reply.made for text in texts] == expected
    assert len({tuple(made) for made in expected}) > 1


def test_a_common_beginning_is_copied_from_a_text_that_runs(folders: dict[str, Path]) -> None:
    counting = Counting(folders["several"], chunk=CHUNK)
    ids = [[*LONG, 50 + i, 60 + i] for i in range(3)]
    texts = [counting.begin(one, 20) for one in ids[:2]]
    for _ in range(12):
        counting.step()
    texts.append(counting.begin(ids[2]))
    short = counting.begin([*LONG[: LEAST - 1], 3])
    counting.finish()
    assert counting.read == len(ids[0]) + 2 + 2 + LEAST
    assert [text.reused for text in [*texts, short]] == [0, len(LONG), len(LONG), 0]
    for text, one in zip(texts, ids, strict=True):
        assert text.reply.made == alone(folders["several"], one, text.count)


def test_a_reader_that_goes_away(folders: dict[str, Path]) -> None:
    counting = Counting(folders["several"], chunk=CHUNK)
    first, second = counting.begin(LONG), counting.begin(LONG)
    third = counting.begin([*LONG, 9])
    counting.step()
    counting.places.end(first)
    counting.finish()
    assert second.reply.made == alone(folders["several"], LONG)
    assert third.reply.made == alone(folders["several"], [*LONG, 9])


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny-gemma3", "tiny-phi3-longrope", "tiny-dynamic"])
def test_windows_and_two_ways_of_reading(name: str, tmp_path: Path) -> None:
    """A window that loses positions, and rotary factors that depend on the length of the text."""
    source, folder = ROOT / "tests" / "data" / name, tmp_path / "made"
    artifact.make(artifact.prepare(artifact.Request(source, folder, batch=4)))
    model = loader.load(folder)
    limit = model.manifest.limits["input_ids"]
    assert isinstance(limit, tuple)
    most = limit[1]
    context = model.manifest.context or 0
    for length in (context // 3, context - 12):
        ids = [3 + 7 * i % (most - 3) for i in range(length)]
        for chunk in (3, CHUNK, 1000):
            counting = Counting(folder, chunk=chunk)
            texts = [counting.begin(one, 10) for one in (ids, ids, [*ids[:-2], 3, 4], ids[:5])]
            counting.finish()
            for text in texts:
                assert text.reply.made == alone(folder, text.reply.ids, 10)
