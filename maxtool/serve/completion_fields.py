"""Fields of requests for text: what is supported, what changes nothing, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeGuard

from maxtool.runtime.loader import Sampling
from maxtool.runtime.loader.json_schema import ANY_OBJECT
from maxtool.runtime.loader.prompt_lines import LONGEST_STOP, MOST_STOPS
from maxtool.serve.fields import (
    Reader,
    anything,
    flag,
    mapping,
    number,
    one_of,
    only,
    strings,
    text,
    whole,
    within,
)
from maxtool.serve.message_parts import content

MOST_PROMPTS, MOST_CHOICES, MOST_TOP, MOST_IDS = 64, 16, 20, 1 << 31
SAMPLING = [field.name for field in fields(Sampling)]


MESSAGE: Mapping[str, Reader] = {
    "role": one_of("system", "developer", "user", "assistant"),
    "content": content,
    "name": text,
    "refusal": anything,
    "annotations": anything,
}


def _messages(value: object) -> list[dict[str, Any]]:
    """Read a conversation, of at least one message."""
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of messages")
    read = within(MESSAGE)
    messages = [read(message) for message in value]
    if any("role" not in message or "content" not in message for message in messages):
        raise ValueError("must have a role and a content in each message")
    return [_message(message) for message in messages]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates know it: they call a developer the system."""
    kept = {name: message[name] for name in ("role", "content", "name") if name in message}
    return kept | ({"role": "system"} if kept["role"] == "developer" else {})


def texts_or_ids(most: int) -> Reader:
    """Return a reader of a text or token ids, or of a list of such; gives a list."""

    def reader(value: object) -> list[str | list[int]]:
        several = value if isinstance(value, list) and not _is_ids(value) else [value]
        if not 1 <= len(several) <= most:
            raise ValueError(f"must be 1 to {most} texts")
        return [one if _is_ids(one) else text(one) for one in several]

    return reader


def _is_ids(value: object) -> TypeGuard[list[int]]:
    """Return whether a value is a list of numbers that tokens of any vocabulary may have."""
    if not isinstance(value, list) or not value:
        return False
    return all(type(one) is int and 0 <= one < MOST_IDS for one in value)


def _format(value: object) -> Mapping[str, object] | None:
    """Read a format of answers: a JSON schema, or None for any text."""
    asked = within(RESPONSE_FORMAT)(value)
    kind = asked.get("type")
    if kind != "json_schema":
        if kind is None or "json_schema" in asked:
            raise ValueError("must have a type, and json_schema only with that type")
        return ANY_OBJECT if kind == "json_object" else None
    if "schema" not in asked.get("json_schema", {}):
        raise ValueError("must have a schema in json_schema")
    schema: Mapping[str, object] = asked["json_schema"]["schema"]
    return schema


FORMAT = "response_format"
RESPONSE_FORMAT: Mapping[str, Reader] = {
    "type": one_of("text", "json_object", "json_schema"),
    "json_schema": within(
        {"name": text, "description": text, "strict": flag, "schema": mapping},
    ),
}
BOTH: Mapping[str, Reader] = {
    "model": text,
    "stream": flag,
    "stream_options": within({"include_usage": flag, "include_obfuscation": only(False)}),
    "max_tokens": whole(0),
    "n": whole(1, MOST_CHOICES),
    "stop": strings(MOST_STOPS, LONGEST_STOP),
    "temperature": number,
    "top_p": number,
    "top_k": whole(1),
    "min_p": number,
    "repetition_penalty": number,
    "seed": whole(0),
    FORMAT: _format,
    "presence_penalty": only(0, 0.0, instead="repetition_penalty is"),
    "frequency_penalty": only(0, 0.0, instead="repetition_penalty is"),
    "logit_bias": only({}),
    "user": anything,
    "metadata": anything,
    "store": only(False),
    "service_tier": anything,
    "safety_identifier": anything,
    "prompt_cache_key": anything,
}
COMPLETION: Mapping[str, Reader] = {
    **BOTH,
    "prompt": texts_or_ids(MOST_PROMPTS),
    "logprobs": whole(0, MOST_TOP),
    "best_of": only(1),
    "echo": only(False),
    "suffix": only(""),
}
CHAT: Mapping[str, Reader] = {
    **BOTH,
    "messages": _messages,
    "max_completion_tokens": whole(0),
    "logprobs": flag,
    "top_logprobs": whole(0, MOST_TOP),
    "chat_template_kwargs": mapping,
    "modalities": only(["text"]),
    "tools": only([]),
    "tool_choice": only("none", "auto"),
    "parallel_tool_calls": anything,
    "functions": only([]),
}
