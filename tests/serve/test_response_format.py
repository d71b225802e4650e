"""Answers that follow a JSON schema, alone and beside answers that follow none."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import jsonschema
import pytest

from maxtool.runtime import loader
from maxtool.runtime.loader import json_schema
from maxtool.serve.reading import MOST_COMPILES
from tests.serve.conftest import wait_until
from tests.serve.http_client import CHAT, COMPLETIONS, Client

PROMPT = "Once upon a time"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "friends": {"type": "array", "items": {"enum": ["fox", "owl"]}, "maxItems": 2},
    },
    "required": ["name", "age", "friends"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "one", "strict": True, "schema": SCHEMA}}
ASKED = {"prompt": PROMPT, "max_tokens": 200, "response_format": FORMAT}
BOTH = pytest.mark.parametrize("name", ["one", "several"])


def of_loader(folder: Path, schema: dict[str, Any] | None, **sampling: Any) -> loader.Completion:
    model = loader.load(folder)
    grammar = None if schema is None else model.grammar(schema)
    prompt = loader.Prompt(PROMPT, 200, loader.Sampling(**sampling), grammar=grammar)
    (completion,) = loader.generate_many(model, [prompt])
    return completion


@BOTH
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.3, "top_p": 0.9}])
def test_a_text_is_the_loaders_and_follows_its_schema(
    client: Client, folders: dict[str, Path], name: str, sampling: dict[str, float]
) -> None:
    expected = of_loader(folders[name], SCHEMA, seed=4, **sampling)
    asked = {**ASKED, "model": name, "seed": 4, **sampling}
    (choice,) = client.good(COMPLETIONS, asked)["choices"]
    jsonschema.validate(json.loads(choice["text"]), SCHEMA)
    assert (choice["text"], choice["finish_reason"]) == (expected.text, "stop")
    pieces = client.events(COMPLETIONS, asked)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == expected.text
    assert len(pieces) > 10
    assert pieces[-1]["choices"][0]["finish_reason"] == "stop"


@BOTH
def test_replies_of_several_choices(client: Client, name: str) -> None:
    asked = {
        "model": name,
        "messages": [{"role": "user", "content": "Hello"}],
        "response_format": FORMAT,
        "max_tokens": 200,
        "n": 3,
        "seed": 1,
        "logprobs": True,
        "top_logprobs": 3,
    }
    choices = client.good(CHAT, asked)["choices"]
    texts = [choice["message"]["content"] for choice in choices]
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len({*texts}) == 3
    for choice, text in zip(choices, texts, strict=True):
        said = [bytes(one["bytes"]) for one in choice["logprobs"]["content"]]
        assert b"".join(said).decode() == text
        first = choice["logprobs"]["content"][0]
        assert first["logprob"] < first["top_logprobs"][0]["logprob"], "the model's own"
    streamed = dict.fromkeys(range(3), "")
    for piece in client.events(CHAT, asked):
        for choice in piece["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content", "")
    assert [*streamed.values()] == texts


def test_any_object(client: Client) -> None:
    asked = {**ASKED, "model": "one", "response_format": {"type": "json_object"}, "temperature": 0}
    choices = [
        client.good(COMPLETIONS, {**asked, "temperature": 1.5, "seed": seed})["choices"][0]
        for seed in range(8)
    ]
    ended = [choice["text"] for choice in choices if choice["finish_reason"] == "stop"]
    assert ended
    assert all(isinstance(json.loads(text), dict) for text in ended)
    assert all(choice["text"].startswith("{") for choice in choices)


def test_any_text(client: Client) -> None:
    asked = {"model": "one", "prompt": PROMPT, "seed": 3}
    free = client.good(COMPLETIONS, {**asked, "response_format": {"type": "text"}})
    assert free["choices"] == client.good(COMPLETIONS, asked)["choices"]


def test_a_text_that_is_cut(client: Client) -> None:
    asked = {**ASKED, "model": "several", "seed": 4}
    (whole,) = client.good(COMPLETIONS, asked)["choices"]
    (cut,) = client.good(COMPLETIONS, {**asked, "max_tokens": 7})["choices"]
    assert cut["finish_reason"] == "length"
    assert whole["text"].startswith(cut["text"])
    (stopped,) = client.good(COMPLETIONS, {**asked, "stop": '"age"'})["choices"]
    assert stopped["finish_reason"] == "stop"
    assert stopped["text"] == whole["text"].partition('"age"')[0]


@pytest.mark.long
def test_texts_beside_it_are_what_they_are_alone(client: Client, folders: dict[str, Path]) -> None:
    free = [of_loader(folders["several"], None, seed=seed, temperature=1.0) for seed in range(6)]
    bound = [of_loader(folders["several"], SCHEMA, seed=seed, temperature=1.0) for seed in range(6)]

    def ask(number: int) -> Any:
        own = ASKED if number % 2 else {**ASKED, "response_format": None}
        asked = {**own, "model": "several", "seed": number // 2}
        return client.good(COMPLETIONS, asked)["choices"][0]["text"]

    with ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(ask, range(12)))
    assert texts[::2] == [one.text for one in free]
    assert texts[1::2] == [one.text for one in bound]


def test_others_go_on_while_a_schema_is_compiled(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = Event(), Event()

    def slowly(*_: object, **__: object) -> dict[str, object]:
        begun.set()
        assert go_on.wait(60)
        return {}

    monkeypatch.setattr(json_schema, "answer_of", slowly)
    other = {"type": "json_schema", "json_schema": {"schema": {"const": "another"}}}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            client.good, COMPLETIONS, {**ASKED, "model": "several", "response_format": other}
        )
        wait_until(begun.is_set)
        try:
            free = {"model": "several", "prompt": PROMPT, "max_tokens": 20}
            assert client.good(COMPLETIONS, free)["usage"]["completion_tokens"] == 20
            assert not answer.done()
        finally:
            go_on.set()
        assert answer.result()["choices"][0]["text"] == '"another"'


def test_others_do_not_wait_for_schemas(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them come than are compiled, or may wait; one is known already."""
    known = client.good(COMPLETIONS, {**ASKED, "model": "one", "seed": 1})
    go_on = Event()

    def slowly(*_: object, **__: object) -> dict[str, object]:
        assert go_on.wait(60)
        return {"error": "it is bad"}

    monkeypatch.setattr(json_schema, "answer_of", slowly)

    def ask(number: int) -> tuple[int, Any]:
        schema = {"type": "json_schema", "json_schema": {"schema": {"const": number}}}
        asked = {**ASKED, "model": "one", "response_format": schema}
        return client.ask(COMPLETIONS, asked)

    with ThreadPoolExecutor(MOST_COMPILES + 1) as pool:
        answers = [pool.submit(ask, number) for number in range(MOST_COMPILES + 1)]
        try:
            wait_until(lambda: any(answer.done() for answer in answers))
            (refused,) = [answer.result() for answer in answers if answer.done()]
            assert refused[0] == 429
            assert refused[1]["error"]["code"] == "queue_full"
            free = {"model": "one", "prompt": PROMPT, "max_tokens": 2}
            assert client.good(COMPLETIONS, free)["usage"]["completion_tokens"] == 2
            again = client.good(COMPLETIONS, {**ASKED, "model": "one", "seed": 1})
            assert again["choices"] == known["choices"]
        finally:
            go_on.set()
        statuses = sorted(answer.result()[0] for answer in answers)
    assert statuses == [400] * MOST_COMPILES + [429]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("json", "must be an object"),
        ({}, "must have a type"),
        ({"type": "xml"}, "'text' or 'json_object' or 'json_schema'"),
        ({"type": "json_schema"}, "must have a schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "must have a schema"),
        ({"type": "json_schema", "json_schema": {"schema": True}}, "must be an object"),
        ({"type": "json_object", "json_schema": {"schema": {}}}, "only with that type"),
        ({"type": "json_schema", "json_schema": {"schema": {"not": {}}}}, "Unimplemented keys"),
        (
            {"type": "json_schema", "json_schema": {"schema": {"pattern": "(" * 9000}}},
            "regex parse error",
        ),
    ],
)
def test_formats_that_are_refused(client: Client, given: object, says: str) -> None:
    asked = {**ASKED, "model": "one", "response_format": given}
    assert says in client.refused(400, COMPLETIONS, asked)["message"]
    chat = {"model": "one", "messages": [{"role": "user", "content": "x"}]}
    assert says in client.refused(400, CHAT, {**chat, "response_format": given})["message"]


def test_without_the_package(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"missing": "is not installed"}
    monkeypatch.setattr(json_schema, "answer_of", lambda *_, **__: missing)
    schema = {"type": "json_schema", "json_schema": {"schema": {"const": "new"}}}
    asked = {**ASKED, "model": "one", "response_format": schema}
    refused = client.refused(500, COMPLETIONS, asked)
    assert "llguidance, which is not installed" in refused["message"]
    assert refused["type"] == "server_error"
