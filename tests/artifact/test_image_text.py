"""Models that read images within texts: Gemma 3 whole, beside what transformers computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.errors import ConfigurationError, UsageError
from maxtool.runtime import loader
from maxtool.runtime.loader.errors import BadInput, DoesNotFit
from maxtool.runtime.loader.placed_images import PlacedImage
from maxtool.runtime.loader.session import Session
from tests.artifact.illustrated import CASES, RECORDED, picture, written
from tests.artifact.making import made, run
from tests.artifact.measure import BOUND, error
from tests.data.seeded import pixel_values
from tests.effort import sampled, thinned

TOKEN, BEGIN = 256, 257


def images_of(case: str) -> list[PlacedImage]:
    """The images of a case where they stand in its text."""
    ids, count = CASES[case]["ids"], CASES[case]["config"]["mm_tokens_per_image"]
    starts = [at + 1 for at, token in enumerate(ids) if token == BEGIN]
    pixels = pixel_values(CASES[case]["config"]["vision_config"])
    return [
        PlacedImage(at, at + count, image, str(number))
        for number, (at, image) in enumerate(zip(starts, pixels, strict=True))
    ]


class Forced:
    """Logits, in the place of tokens that are chosen: those of a text follow each other."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens, self.logits = [*tokens], []

    def __call__(self, logits: Any, _before: Sequence[int]) -> int:
        self.logits.append(logits.copy())
        return self.tokens.pop(0) if self.tokens else 0


@pytest.mark.long
@pytest.mark.parametrize("case", sampled(thinned([*CASES], "plain", "few"), "plain", "few"))
def test_what_transformers_computes(case: str, tmp_path: Path) -> None:
    """A text with two images, the second past the windows, and tokens that come by themselves."""
    model = loader.load(made(written(tmp_path / "model", case), check=True))
    assert model.manifest.root["recipe"] == "gemma3_image_text"
    ids, expected = CASES[case]["ids"], RECORDED[f"{case}/logits"]
    decoded = len(expected) - 1
    choose = Forced(ids[-decoded:])
    session = Session(model)
    [*session.generate(ids[:-decoded], decoded + 1, choose, images_of(case))]
    assert error(np.stack(choose.logits), expected) <= BOUND
    assert session.ids == ids


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """An artifact with a tokenizer and a processor."""

    @cache
    def make() -> Path:
        folder = tmp_path_factory.mktemp("whole") / "model"
        return made(written(folder, "whole", whole=True))

    return make


@pytest.mark.long
def test_an_image_stands_where_a_text_has_its_token(
    compiled: Callable[[], Path], tmp_path: Path
) -> None:
    """Line ends around, and all tokens of the image, as transformers' processor writes it."""
    model, file = loader.load(compiled()), picture(tmp_path / "x.png")
    image = "\n\n<image>" + "<soft>" * 9 + "</image>\n\n"
    ids, (placed,) = model.illustrated("a<image>b", [file])
    assert ids == model.encode(f"a{image}b")
    assert placed.start == ids.index(TOKEN) and placed.end == placed.start + 9
    first, _ = model.illustrated("b", [file])
    assert first == model.encode(f"{image}b")
    with pytest.raises(BadInput, match="places for 1 images, and 2 are given"):
        model.illustrated("a<image>b", [file, file])


def test_another_image_gives_another_text(compiled: Callable[[], Path], tmp_path: Path) -> None:
    """A state that has read one image is kept for it, and for no other."""
    model = loader.load(compiled())
    files = [picture(tmp_path / f"{seed}.png", seed) for seed in (1, 2)]
    session = Session(model)
    fresh = {}
    for file in files:
        ids, images = model.illustrated("ab", [file])
        choose = Forced([5])
        [*Session(model).generate(ids, 1, choose, images)]
        fresh[file] = choose.logits[0]
    assert error(fresh[files[0]], fresh[files[1]]) > 1e-3
    for file, reused in ((files[0], 0), (files[0], 16), (files[1], 3), (files[0], 3)):
        ids, images = model.illustrated("ab", [file])
        choose = Forced([5])
        [*session.generate(ids, 1, choose, images)]
        assert session.reused == reused
        assert error(choose.logits[0], fresh[file]) <= BOUND


def test_a_place_without_its_image_is_another_text(
    compiled: Callable[[], Path], tmp_path: Path
) -> None:
    """Ids are the same, whether an image is given for them or not."""
    model = loader.load(compiled())
    ids, images = model.illustrated("ab", [picture(tmp_path / "x.png")])
    session, reused = Session(model), []
    for given in (images, [], images):
        [*session.generate(ids, 1, Forced([5]), given)]
        reused.append(session.reused)
    assert reused == [0, images[0].start, images[0].start]


def test_the_programs(compiled: Callable[[], Path], tmp_path: Path) -> None:
    folder, file = compiled(), picture(tmp_path / "x.png")
    model = loader.load(folder)
    ids, images = model.illustrated("what is it?", [file])
    expected = model.decode([*ids, *model.generate(ids, 6, images=images)])
    said, _ = run("run", folder, "--prompt", "what is it?", "--image", file, "--max-tokens", 6)
    assert said.startswith("what is it?") and len(said) > len("what is it?\n")
    told, _ = run(
        "run", folder, "--prompt", "what is it?", "--image", file, "--max-tokens", 6, "--json"
    )
    content = json.loads(told)
    assert content["prompt_ids"] == ids
    assert model.decode([*ids, *content["ids"]]) == expected
    reply, _ = run(
        "run", folder, "--chat", "--prompt", "look", "--image", file, "--max-tokens", 4, "--json"
    )
    chat = json.loads(reply)["prompt_ids"]
    text = "<bos>[user]\n\n<image>" + "<soft>" * 9 + "</image>\n\nlook[model]"
    assert chat == model.encode(text)


def test_marks_in_a_message_are_no_images(compiled: Callable[[], Path], tmp_path: Path) -> None:
    """The text of a special token that a user types is the characters that it is."""
    model = loader.load(compiled())
    conversation = loader.Conversation(model)
    reply = conversation.ask("is <image> here?", 3, [picture(tmp_path / "x.png")])
    "".join(reply)
    assert list(reply.ids).count(BEGIN) == 1
    assert list(reply.ids).count(TOKEN) == 9


def test_a_conversation_remembers_images(compiled: Callable[[], Path], tmp_path: Path) -> None:
    model = loader.load(compiled())
    conversation = loader.Conversation(model)
    "".join(conversation.ask("first", 3, [picture(tmp_path / "x.png", 1)]))
    read = conversation.ask("second", 3, [picture(tmp_path / "y.png", 2)])
    "".join(read)
    assert list(read.ids).count(BEGIN) == 2
    assert conversation.reused > 9  # the first image is not read again


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--image", "{x}"), 2, "give a text, too"),
        (("--prompts", "{x}", "--image", "{x}"), 2, "--image goes with --prompt or --file"),
        (("--ids", "1,2", "--image", "{x}"), 2, "give one of"),
        (("--prompt", "a", "--image", "{none}"), 3, "cannot be read"),
        (("--prompt", "a<image><image>", "--image", "{x}"), 3, "places for 2 images, and 1"),
    ],
)
def test_what_does_not_go_together(
    arguments: Sequence[str],
    code: int,
    message: str,
    compiled: Callable[[], Path],
    tmp_path: Path,
) -> None:
    file = picture(tmp_path / "x.png")
    names = [one.format(x=file, none=tmp_path / "none.png") for one in arguments]
    _, said = run("run", compiled(), *names, code=code)
    assert message in said


@pytest.mark.long
def test_a_model_without_images_refuses_them(tmp_path: Path) -> None:
    source = written(tmp_path / "model", "whole", whole=True)
    folder = made(source, recipe="gemma3_vision")
    file = picture(tmp_path / "x.png")
    _, said = run("run", folder, "--prompt", "a", "--image", file, code=4)
    assert "reads no images within texts" in said
    with pytest.raises(DoesNotFit, match="no images within texts"):
        loader.Conversation(loader.load(folder)).ask("a", 1, [file])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mm_tokens_per_image": 8}, "image_tokens is 8, no square number"),
        ({"mm_tokens_per_image": 16}, "no squares of 6 x 6 patches"),
        ({"text_config.sliding_window": 8}, "a window of 8 is less than the 9 of an image"),
        ({"text_config.max_position_embeddings": 9}, "no room for an image of 9 and a token"),
    ],
)
def test_sizes_that_do_not_fit(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "plain")
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        table, _, name = key.rpartition(".")
        (config[table] if table else config)[name] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigurationError) as caught:
        artifact.prepare(artifact.Request(folder, tmp_path / "out"))
    assert message in f"{caught.value.what} {caught.value.problems}"


def test_a_context_without_room_for_an_image(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", "plain")
    with pytest.raises((ConfigurationError, UsageError), match="no room for an image"):
        artifact.prepare(artifact.Request(folder, tmp_path / "out", context=9))
