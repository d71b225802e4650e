"""Conversations in which images stand, with and without slots."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from maxtool.runtime import loader
from tests.artifact.illustrated import picture, written
from tests.artifact.making import made
from tests.serve.conftest import serving
from tests.serve.http_client import CHAT, Client

BOTH = pytest.mark.parametrize("name", ["alone", "slots"])
TOKENS = 6


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("illustrated")
    source = written(base / "model", "whole", whole=True)
    return {
        "alone": made(source, base / "alone"),
        "slots": made(source, base / "slots", batch=3),
        "words": made(source, base / "words", recipe="gemma3_vision"),
    }


@pytest.fixture(scope="module")
def server(artifacts: dict[str, Path]) -> Iterator[Client]:
    with serving(artifacts, *artifacts, chunk=8) as client:
        yield client


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    return [picture(tmp_path / f"{seed}.png", seed) for seed in range(3)]


def part(image: Path | bytes, **more: str) -> dict[str, object]:
    data = image if isinstance(image, bytes) else image.read_bytes()
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"type": "image_url", "image_url": {"url": url, **more}}


def asked(name: str, text: str, *parts: object, **more: object) -> dict[str, Any]:
    content = [*parts, {"type": "text", "text": text}]
    messages = [{"role": "user", "content": content}]
    return {"model": name, "messages": messages, "max_tokens": TOKENS, "temperature": 0, **more}


def expected(artifacts: dict[str, Path], text: str, *files: Path) -> str:
    """The reply of a conversation in Python, which has nothing from before in memory."""
    return "".join(loader.Conversation(loader.load(artifacts["alone"])).ask(text, TOKENS, files))


def said(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["message"]["content"])


@BOTH
def test_replies_are_those_of_a_conversation(
    server: Client, artifacts: dict[str, Path], pictures: list[Path], name: str
) -> None:
    replies = [
        said(server.good(CHAT, asked(name, "what?", part(file, detail="auto"))))
        for file in pictures
    ]
    assert replies == [expected(artifacts, "what?", file) for file in pictures]
    assert len({*replies}) > 1
    both = asked(name, "and now?", *map(part, pictures[:2]))
    assert said(server.good(CHAT, both)) == expected(artifacts, "and now?", *pictures[:2])


@BOTH
def test_what_was_read_is_read_again_for_another_image(
    server: Client, pictures: list[Path], name: str
) -> None:
    def cached(file: Path) -> int:
        usage = server.good(CHAT, asked(name, "cached?", part(file)))["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    cached(pictures[0])
    first = asked(name, "cached?", part(pictures[0]))
    whole = server.good(CHAT, first)["usage"]["prompt_tokens"]
    assert cached(pictures[0]) == whole - 1
    assert cached(pictures[2]) <= whole - 9


def test_texts_with_images_go_on_side_by_side(
    server: Client, artifacts: dict[str, Path], pictures: list[Path]
) -> None:
    """Each sees its own, and equal ones wait for what one of them reads."""
    files = [*pictures, pictures[0]]
    replies: list[str] = [""] * len(files)

    def ask(index: int) -> None:
        answer = server.good(CHAT, asked("slots", "side by side?", part(files[index]), n=2))
        first, second = (choice["message"]["content"] for choice in answer["choices"])
        assert first == second
        replies[index] = first

    threads = [Thread(target=ask, args=[index]) for index in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [expected(artifacts, "side by side?", file) for file in files]


def test_models_say_whether_they_read_images(server: Client) -> None:
    models = {
        model["id"]: model["maxtool"]["images"] for model in server.good("/v1/models")["data"]
    }
    assert models == {"alone": True, "slots": True, "words": False}


@pytest.mark.parametrize(
    ("name", "parts", "message", "code"),
    [
        ("words", [part(b"")], "reads no images within texts", None),
        ("alone", [part(b"no picture")], "no image that can be decoded", None),
        ("alone", [part(b"none is looked at")] * 20, "the prompt has ", "context_length_exceeded"),
        (
            "alone",
            [{"type": "image_url", "image_url": {"url": "http://example.org/cat.png"}}],
            "nothing is fetched here",
            None,
        ),
        (
            "alone",
            [{"type": "image_url", "image_url": {"url": "data:image/png;base64,a"}}],
            "must be an image in base64",
            None,
        ),
        ("alone", [{"type": "image_url"}], "must have a url", None),
        ("alone", [{"type": "input_audio"}], "must be 'text' or 'image_url'", None),
        ("alone", ["what?"], "must be an object", None),
    ],
)
def test_what_is_refused(
    server: Client, name: str, parts: list[object], message: str, code: str | None
) -> None:
    error = server.refused(400, CHAT, asked(name, "what?", *parts))
    assert message in error["message"]
    assert error["code"] == code
