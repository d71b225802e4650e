"""Texts over HTTP are those that the loader makes of the same prompts."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.runtime import loader
from maxtool.runtime.loader.likelihood import log_softmax
from tests.serve.http_client import CHAT, COMPLETIONS, Client

PROMPT = "Once upon a time"
BOTH = pytest.mark.parametrize("name", ["one", "several"])


def alone(folder: Path, text: str, count: int, **sampling: Any) -> loader.Completion:
    prompt = loader.Prompt(text, count, loader.Sampling(**sampling))
    (completion,) = loader.generate_many(loader.load(folder), [prompt])
    return completion


@BOTH
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.1, "top_k": 30}])
def test_a_completion_is_the_loaders(
    client: Client, folders: dict[str, Path], name: str, sampling: dict[str, float]
) -> None:
    expected = alone(folders["one"], PROMPT, 30, seed=7, **sampling)
    asked = {"model": name, "prompt": PROMPT, "max_tokens": 30, "seed": 7, **sampling}
    answer = client.good(COMPLETIONS, asked)
    (choice,) = answer["choices"]
    assert choice["text"] == expected.text
    assert choice["finish_reason"] == "length"
    assert answer["object"] == "text_completion"
    prompt = len(expected.prompt_ids)
    counts = {"prompt_tokens": prompt, "completion_tokens": 30, "total_tokens": prompt + 30}
    assert answer["usage"].items() >= counts.items()
    pieces = client.events(COMPLETIONS, asked)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == expected.text
    assert [piece["choices"][0]["finish_reason"] for piece in pieces[-2:]] == [None, "length"]
    assert len(pieces) > 20


@BOTH
def test_a_reply_streams_and_is_counted(
    client: Client, folders: dict[str, Path], name: str
) -> None:
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": "Hello"}]
    written = "system: x\nuser: Hello\nassistant:"
    model = loader.load(folders["one"])
    prompt = loader.Prompt(
        model.tokenizer.encode(written, add_special_tokens=False).ids, 20, alone=True
    )
    (expected,) = loader.generate_many(model, [prompt])
    asked = {"model": name, "messages": messages, "max_completion_tokens": 20, "temperature": 0}
    answer = client.good(CHAT, asked)
    message = {"role": "assistant", "content": expected.text, "refusal": None}
    assert answer["choices"][0]["message"] == message
    options = {"stream_options": {"include_usage": True}}
    first, *pieces, last = client.events(CHAT, {**asked, **options})
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces)
    assert text == expected.text
    assert [piece["usage"] for piece in [first, *pieces]] == [None] * (len(pieces) + 1)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 20)
    assert last["usage"]["prompt_tokens"] == len(prompt.text)


def test_a_template_is_given_what_a_request_says(client: Client) -> None:
    asked = {"model": "one", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
    more = {"chat_template_kwargs": {"more": "and then some: "}}
    counts = [client.good(CHAT, {**asked, **one})["usage"]["prompt_tokens"] for one in ({}, more)]
    assert counts[0] < counts[1]


def test_contents_in_parts_are_one_text(client: Client) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    asked: dict[str, Any] = {"model": "one", "max_tokens": 5, "temperature": 0}
    texts = [
        client.good(CHAT, {**asked, "messages": [{"role": "user", "content": content}]})
        for content in (parts, "Hello")
    ]
    assert texts[0]["choices"] == texts[1]["choices"]


@BOTH
def test_several_prompts_and_choices(client: Client, folders: dict[str, Path], name: str) -> None:
    """Each choice is drawn with a seed of its own, and each is what it would be alone."""
    ids = loader.load(folders["one"]).encode("The old")
    asked = {"model": name, "prompt": [PROMPT, ids, "A"], "n": 2, "max_tokens": 9, "seed": 3}
    answer = client.good(COMPLETIONS, asked)
    expected = [
        alone(folders["one"], text, 9, temperature=1.0, seed=seed).text
        for text in (PROMPT, "The old", "A")
        for seed in (3, 4)
    ]
    assert [choice["text"] for choice in answer["choices"]] == expected
    assert [choice["index"] for choice in answer["choices"]] == [*range(6)]
    assert answer["usage"]["completion_tokens"] == 54
    lengths = [len(loader.load(folders["one"]).encode(text)) for text in (PROMPT, "The old", "A")]
    assert answer["usage"]["prompt_tokens"] == sum(lengths)
    texts = dict.fromkeys(range(6), "")
    for piece in client.events(COMPLETIONS, asked):
        texts[piece["choices"][0]["index"]] += piece["choices"][0]["text"]
    assert list(texts.values()) == expected


def test_a_stop_string_ends_a_text_before_it(client: Client, folders: dict[str, Path]) -> None:
    whole = alone(folders["one"], PROMPT, 30).text
    asked = {"model": "one", "prompt": PROMPT, "max_tokens": 30, "temperature": 0}
    stop = whole[20:26]
    answer = client.good(COMPLETIONS, {**asked, "stop": stop})
    choice = {"text": whole[: whole.index(stop)], "finish_reason": "stop"}
    assert answer["choices"][0].items() >= choice.items()
    pieces = client.events(COMPLETIONS, {**asked, "stop": ["none of this", stop]})
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == choice["text"]


@BOTH
def test_a_common_beginning_is_not_read_twice(client: Client, name: str) -> None:
    def cached(prompt: str) -> int:
        asked = {"model": name, "prompt": prompt, "max_tokens": 4, "temperature": 0}
        usage = client.good(COMPLETIONS, asked)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    begin = "The fox and the owl sat by the river, and none of them said a word."
    cached(begin)
    assert cached(begin) >= 10
    assert cached(f"{begin} Then") >= 10
    assert cached("Quite another text") <= 1


@BOTH
def test_logarithms_of_probabilities(client: Client, folders: dict[str, Path], name: str) -> None:
    """Beside those of the model's logits, of each position, from ``forward``."""
    asked = {"model": name, "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 3}
    choice = client.good(COMPLETIONS, asked)["choices"][0]
    model, found = loader.load(folders["one"]), choice["logprobs"]
    before = model.encode(PROMPT)
    made = list(model.generate(before, 6))
    logits = model(input_ids=[before + made])["logits"][0, len(before) - 1 :]
    for index, token in enumerate(made):
        shares = log_softmax(logits[index])
        assert found["token_logprobs"][index] == pytest.approx(shares[token], abs=1e-3)
        best = np.sort(shares)[-3:]
        top = sorted(found["top_logprobs"][index].values())
        np.testing.assert_allclose(top, best, atol=1e-3)
    assert "".join(found["tokens"]) == choice["text"]
    assert found["text_offset"] == [choice["text"].index(text) for text in found["tokens"]]
    pieces = client.events(COMPLETIONS, asked)
    told = [piece["choices"][0]["logprobs"] for piece in pieces]
    assert [at for one in told if one for at in one["text_offset"]] == found["text_offset"]
    chat = {"model": name, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
    (reply,) = client.good(CHAT, {**chat, "logprobs": True, "top_logprobs": 2})["choices"]
    tokens = reply["logprobs"]["content"]
    said = b"".join(bytes(one["bytes"]) for one in tokens)
    assert said.decode() == reply["message"]["content"]
    assert [len(one["top_logprobs"]) for one in tokens] == [2] * 3
    pieces = client.events(CHAT, {**chat, "logprobs": True, "seed": 1})
    streamed = [piece["choices"][0]["logprobs"] for piece in pieces]
    assert sum(len(one["content"]) for one in streamed if one) == 3


def test_no_tokens_and_a_full_context(client: Client) -> None:
    for name in ("one", "several"):
        asked = {"model": name, "prompt": PROMPT, "max_tokens": 0}
        assert client.good(COMPLETIONS, asked)["choices"][0]["text"] == ""
        long = {"model": name, "prompt": [7] * 512, "max_tokens": 9, "seed": 1}
        (choice,) = client.good(COMPLETIONS, long)["choices"]
        assert choice["finish_reason"] in ("length", "stop")
        refused = client.refused(400, COMPLETIONS, {**long, "prompt": [7] * 513})
        assert refused["code"] == "context_length_exceeded"


def test_vectors_are_the_loaders(client: Client, folders: dict[str, Path]) -> None:
    texts = ["a", "b a", "c"]
    expected = loader.load(folders["vectors"]).embed(texts)
    asked = {"model": "vectors", "input": texts}
    answer = client.good("/v1/embeddings", asked)
    found = np.array([row["embedding"] for row in answer["data"]])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    packed = client.good("/v1/embeddings", {**asked, "encoding_format": "base64"})
    raw = [base64.b64decode(row["embedding"]) for row in packed["data"]]
    np.testing.assert_array_equal([np.frombuffer(one, "<f4") for one in raw], found.astype("f4"))
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    ids = client.good("/v1/embeddings", {"model": "vectors", "input": [1, 2]})
    assert len(ids["data"]) == 1
