"""Requests that are refused: each with the status and the form that OpenAI's API has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.serve.asked import asked_completion
from maxtool.serve.completion_fields import CHAT as CHAT_FIELDS
from maxtool.serve.completion_fields import COMPLETION
from maxtool.serve.fields import parsed, read
from maxtool.serve.limits import Limits
from maxtool.serve.refusal import Refusal
from maxtool.serve.server import Access
from maxtool.serve.vectors import EMBEDDING
from tests.serve.conftest import serving
from tests.serve.http_client import CHAT, COMPLETIONS, JSON, Client

GOOD = {"model": "one", "prompt": "Once", "max_tokens": 2}
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", None),
        ("prompt", 1),
        ("prompt", []),
        ("prompt", [[]]),
        ("prompt", "\ud800"),
        ("prompt", ["a"] * 65),
        ("prompt", [10**400]),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("max_tokens", "5"),
        ("temperature", "hot"),
        ("temperature", 10**400),
        ("n", 0),
        ("n", 99),
        ("logprobs", 21),
        ("stop", 5),
        ("stop", ["a", 5]),
        ("stop", "a" * 2000),
        ("seed", 1.5),
        ("presence_penalty", 1),
        ("logit_bias", {"5": 1}),
        ("echo", True),
        ("best_of", 2),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("stream_options", []),
        ("nonsense", 1),
        ("h\u00e9", 1),
    ],
)
def test_a_field_that_is_wrong_is_named(client: Client, field: str, value: object) -> None:
    assert client.refused(400, COMPLETIONS, {**GOOD, field: value})["param"] == field


def test_a_field_with_half_a_character_is_named(client: Client) -> None:
    assert client.refused(400, COMPLETIONS, {**GOOD, "\ud800": 1})["param"] == "\\ud800"


def test_a_message_may_come_back_as_clients_hold_it(client: Client) -> None:
    """Fields of tools and of sound are there, and null."""
    said = client.good(CHAT, {"model": "one", "messages": HELLO, "max_tokens": 2})
    reply = {**said["choices"][0]["message"], "tool_calls": None, "audio": None}
    asked = {"model": "one", "messages": [*HELLO, reply, *HELLO], "max_tokens": 2}
    assert client.good(CHAT, asked)["choices"]


def test_types_of_content_have_no_case(client: Client) -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert client.good(COMPLETIONS, GOOD, headers=headers)["choices"]


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "missing"),
        ([], "list of messages"),
        (["Hello"], "object"),
        ([{"role": "user"}], "content"),
        ([{"role": "tool", "content": "x"}], "role"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}], "type"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "url"),
        ([{"role": "user", "content": 5}], "content"),
    ],
)
def test_conversations_that_are_wrong(client: Client, messages: object, says: str) -> None:
    asked = {"model": "one", "messages": messages}
    assert says in client.refused(400, CHAT, asked)["message"]


def test_what_is_out_of_range_is_the_loaders_to_refuse(client: Client) -> None:
    assert "temperature" in client.refused(400, COMPLETIONS, {**GOOD, "temperature": -1})["message"]
    assert "top-p" in client.refused(400, COMPLETIONS, {**GOOD, "top_p": 2})["message"]
    assert "takes 0 to" in client.refused(400, COMPLETIONS, {**GOOD, "prompt": [10**6]})["message"]
    asked = {"model": "one", "messages": HELLO, "top_logprobs": 2}
    assert client.refused(400, CHAT, asked)["param"] == "top_logprobs"


def test_models_that_are_not_there_or_do_something_else(client: Client) -> None:
    assert client.refused(404, COMPLETIONS, {**GOOD, "model": "gpt"})["code"] == "model_not_found"
    assert client.refused(400, COMPLETIONS, {"prompt": "x"})["param"] == "model"
    assert "no text" in client.refused(400, COMPLETIONS, {**GOOD, "model": "vectors"})["message"]
    asked: dict[str, object] = {"model": "one", "input": "x"}
    assert "no embeddings" in client.refused(400, "/v1/embeddings", asked)["message"]
    asked = {"model": "vectors", "input": "x", "dimensions": 3}
    assert client.refused(400, "/v1/embeddings", asked)["param"] == "dimensions"
    long = {"model": "vectors", "input": [1] * 500}
    assert client.refused(400, "/v1/embeddings", long)["code"] == "context_length_exceeded"
    listed = client.good("/v1/models")["data"]
    assert [model["id"] for model in listed] == ["one", "several", "vectors"]
    assert client.good("/v1/models/several") == listed[1]
    assert client.refused(404, "/v1/models/gpt", None)["code"] == "model_not_found"
    client.refused(404, "/v2", None)
    client.refused(405, COMPLETIONS, None)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"prompt": NaN}', b'{"a": 1e999}', b"[" * 100_000, b"5"]
)
def test_bodies_that_are_no_json_objects(client: Client, body: bytes) -> None:
    assert "body" in client.refused(400, COMPLETIONS, body)["message"]


def test_pages_elsewhere_cannot_send_requests(client: Client) -> None:
    """Refuse what a browser sends without asking: other types, and for foreign names."""
    assert client.refused(415, COMPLETIONS, GOOD, headers={"Content-Type": "text/plain"})
    with client.asking(COMPLETIONS, GOOD, headers={**JSON, "Host": "evil.example"}) as answer:
        assert answer.status == 400
    origin = {**JSON, "Origin": "https://example.org"}
    with client.asking(COMPLETIONS, GOOD, headers=origin) as answer:
        assert answer.getheader("access-control-allow-origin") is None


@pytest.fixture(scope="module")
def strict(folders: dict[str, Path]) -> Iterator[Client]:
    """A server with a key, an origin that may ask, and narrow limits."""
    access = Access(key="secret", origins=["https://example.org"])
    limits = {"body": 1000, "prompt": 20, "tokens": 3, "queue": 2}
    with serving(folders, "one", access=access, **limits) as client:
        yield client


AUTHORIZED = {**JSON, "Authorization": "Bearer secret"}


def test_a_key_is_needed(strict: Client) -> None:
    for headers in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic secret"}):
        for path in ("/v1/models", "/metrics", "/v1/none"):
            found = strict.refused(401, path, None, headers=headers)
            assert found["code"] == "invalid_api_key"
            assert "secret" not in str(found)
    assert strict.good("/health") == {"status": "ok"}
    assert strict.good("/v1/models", headers=AUTHORIZED)["data"]
    assert strict.good(COMPLETIONS, GOOD, headers=AUTHORIZED)["choices"]


def test_limits(strict: Client) -> None:
    def ask(**more: object) -> tuple[int, Any]:
        return strict.ask(COMPLETIONS, {**GOOD, **more}, headers=AUTHORIZED)

    assert ask(prompt="x" * 1000)[0] == 413
    assert ask(prompt=[7] * 21)[1]["error"]["code"] == "context_length_exceeded"
    assert ask(max_tokens=50)[1]["usage"]["completion_tokens"] == 3
    assert ask(n=3)[0] == 429


def test_an_origin_that_may_ask(strict: Client) -> None:
    headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    with strict.asking(COMPLETIONS, method="OPTIONS", headers=headers) as answer:
        assert answer.status == 200
        assert answer.getheader("access-control-allow-origin") == "https://example.org"


def test_time_is_limited(folders: dict[str, Path]) -> None:
    with serving(folders, "one", seconds=0.05) as client:
        long = {"model": "one", "prompt": "Once", "max_tokens": 500, "n": 16, "temperature": 0}
        assert client.refused(504, COMPLETIONS, long)["code"] == "timeout"
        *_, last = client.events(COMPLETIONS, long)
        assert last["error"]["code"] == "timeout"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("fields", [COMPLETION, CHAT_FIELDS, EMBEDDING])
def test_any_values_are_read_or_refused(fields: dict[str, Any]) -> None:
    @given(st.dictionaries(st.sampled_from(sorted(fields)), VALUES))
    def check(content: dict[str, object]) -> None:
        try:
            values = read(content, fields)
        except Refusal as refusal:
            assert refusal.status == 400
        else:
            assert values.keys() <= content.keys()

    check()


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(COMPLETION, VALUES)))
def test_any_completion_is_begun_or_refused(client: Client, content: dict[str, object]) -> None:
    try:
        asked = asked_completion(client.models["one"], content, Limits())
    except Refusal as refusal:
        assert refusal.status == 400
    else:
        assert asked.texts


@given(st.binary() | VALUES.map(lambda value: repr(value).encode("utf-8", "replace")))
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    try:
        assert isinstance(parsed(body), dict)
    except Refusal as refusal:
        assert refusal.status == 400
