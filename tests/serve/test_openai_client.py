"""OpenAI's own client, which reads every field of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.runtime import loader
from maxtool.serve.server import Access
from tests.serve.conftest import serving
from tests.serve.http_client import Client

pytestmark = pytest.mark.peers
openai = pytest.importorskip("openai")
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def api(client: Client) -> Iterator[Any]:
    with made(client.port) as api:
        yield api


def made(port: int, key: str = "none") -> Any:
    url = f"http://127.0.0.1:{port}/v1"
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def test_chats(api: Any) -> None:
    asked = {"model": "several", "messages": HELLO, "max_tokens": 12, "seed": 4}
    whole = api.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    (choice,) = whole.choices
    assert (choice.finish_reason, choice.message.role) == ("length", "assistant")
    assert "".join(one.token for one in choice.logprobs.content) == choice.message.content
    assert whole.usage.completion_tokens == 12
    with api.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        found = stream.current_completion_snapshot
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert found.choices[0].message.content == choice.message.content


def test_completions(api: Any, folders: dict[str, Path]) -> None:
    asked = {"model": "one", "prompt": "Once", "max_tokens": 12, "temperature": 0}
    (expected,) = loader.generate_many(loader.load(folders["one"]), ["Once"], 12)
    whole = api.completions.create(**asked)
    assert whole.choices[0].text == expected.text
    usage = {"include_usage": True}
    *pieces, last = api.completions.create(**asked, stream=True, stream_options=usage)
    text = "".join(piece.choices[0].text for piece in pieces)
    assert text == expected.text
    assert last.usage.total_tokens == last.usage.prompt_tokens + 12
    with api.completions.create(**{**asked, "max_tokens": 400}, stream=True) as broken_off:
        next(iter(broken_off))


def test_replies_of_a_type(api: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    age = (int, pydantic.Field(ge=0, le=99))
    name = (str, pydantic.Field(max_length=9))
    person = pydantic.create_model("Person", name=name, age=age, friends=(bool | None, ...))
    asked = {"model": "several", "messages": HELLO, "seed": 3, "response_format": person}
    (choice,) = api.chat.completions.parse(**asked).choices
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, person)
    with api.chat.completions.stream(**asked) as stream:
        found = stream.get_final_completion().choices[0].message
    assert found.parsed == choice.message.parsed
    loose = {**asked, "response_format": {"type": "json_object"}, "max_tokens": 5}
    assert api.chat.completions.create(**loose).choices[0].message.content.startswith("{")


def test_embeddings_and_models(api: Any, folders: dict[str, Path]) -> None:
    texts = ["a", "b a"]
    answer = api.embeddings.create(model="vectors", input=texts)
    expected = loader.load(folders["vectors"]).embed(texts)
    np.testing.assert_allclose([row.embedding for row in answer.data], expected, rtol=1e-5)
    assert [model.id for model in api.models.list()] == ["one", "several", "vectors"]
    assert api.models.retrieve("one").id == "one"


def test_errors_are_those_of_the_api(api: Any, folders: dict[str, Path]) -> None:
    with pytest.raises(openai.NotFoundError, match="no model") as missing:
        api.completions.create(model="gpt", prompt="x")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        api.completions.create(model="one", prompt="x", presence_penalty=1)
    assert wrong.value.param == "presence_penalty"
    with serving(folders, "one", access=Access(key="secret"), queue=1) as client:
        with pytest.raises(openai.AuthenticationError):
            made(client.port).models.list()
        with pytest.raises(openai.RateLimitError):
            made(client.port, "secret").completions.create(model="one", prompt="x", n=2)
