"""Requests for text, made of their JSON: texts that are ready to be continued."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maxtool.runtime.loader import MachineLacks, Prompt, RunError, Sampling
from maxtool.runtime.loader.continued_text import Text
from maxtool.runtime.loader.json_schema import Grammar
from maxtool.serve.answer_forms import CHAT_FORM, TEXT_FORM, Form
from maxtool.serve.completion_fields import BOTH, CHAT, COMPLETION, FORMAT, MOST_PROMPTS, SAMPLING
from maxtool.serve.fields import read
from maxtool.serve.images import encoded
from maxtool.serve.limits import Limits
from maxtool.serve.logprobs import NotingSampler
from maxtool.serve.refusal import Refusal, refusal_of, wrong
from maxtool.serve.served import Served

USUAL_TOKENS = 16  # of a completion, as OpenAI's API has it
USUAL_TEMPERATURE = 1.0


@dataclass(frozen=True)
class Asked:
    """A request that can be answered.

    Attributes:
        served: The model.
        form: How the answer is written.
        texts: What is continued: each choice of each prompt.
        choices: How many there are of each.
        streams: Whether the answer is told as it comes.
        counts_usage: Whether a stream ends with the number of tokens.
        logprobs: Whether the answer says how likely its tokens are.
    """

    served: Served
    form: Form
    texts: Sequence[Text]
    choices: int
    streams: bool
    counts_usage: bool
    logprobs: bool


def asked_completion(served: Served, content: Mapping[str, Any], limits: Limits) -> Asked:
    """Read a request for the continuation of one prompt or several."""
    values = read(content, COMPLETION)
    if "prompt" not in values:
        raise wrong("prompt", "is missing")
    usual = _prompt(served, values, values.get("max_tokens", USUAL_TOKENS), limits)
    prompts = [replace(usual, text=text) for text in values["prompt"]]
    return _asked(served, TEXT_FORM, prompts, values, values.get("logprobs"), limits)


def asked_chat(served: Served, content: Mapping[str, Any], limits: Limits) -> Asked:
    """Read a request for a reply."""
    values = read(content, CHAT)
    if "messages" not in values:
        raise wrong("messages", "is missing")
    top = values.get("top_logprobs")
    if top is not None and not values.get("logprobs"):
        raise wrong("top_logprobs", "needs logprobs to be true")
    count = values.get("max_completion_tokens", values.get("max_tokens", sys.maxsize))
    with_template = served.encoder(values.get("chat_template_kwargs", {}))
    ids, images = encoded(served, with_template, values["messages"])
    usual = _prompt(served, values, count, limits)
    prompt = replace(usual, text=ids, images=images, alone=True)
    wanted = (top or 0) if values.get("logprobs") else None
    return _asked(served, CHAT_FORM, [prompt], values, wanted, limits)


def compiles(served: Served, content: Mapping[str, Any]) -> bool:
    """Return whether a request has a schema that is still to be compiled, which takes time."""
    schema = read({FORMAT: content.get(FORMAT)}, {FORMAT: BOTH[FORMAT]}).get(FORMAT)
    try:
        return schema is not None and not served.model.knows_schema(schema)
    except RunError:  # it is refused before that
        return False


def _prompt(served: Served, values: Mapping[str, Any], count: int, limits: Limits) -> Prompt:
    """A prompt without its text."""
    given = {name: values[name] for name in SAMPLING if name in values}
    sampling = Sampling(**{"temperature": USUAL_TEMPERATURE, **given})
    most = count if limits.tokens is None else min(count, limits.tokens)
    schema = values.get(FORMAT)
    grammar = None if schema is None else _grammar(served, schema)
    return Prompt("", most, sampling, values.get("stop", ()), grammar=grammar)


def _grammar(served: Served, schema: Mapping[str, object]) -> Grammar:
    """The grammar of a schema; all that is wrong with it is told of the field."""
    try:
        return served.model.grammar(schema)
    except MachineLacks:
        raise
    except RunError as error:
        raise wrong(FORMAT, f"is refused: {error.what}") from None


def _asked(
    served: Served,
    form: Form,
    prompts: Sequence[Prompt],
    values: Mapping[str, Any],
    top: int | None,
    limits: Limits,
) -> Asked:
    count = values.get("n", 1)
    if count * len(prompts) > MOST_PROMPTS:
        raise wrong("n", f"asks for more than {MOST_PROMPTS} texts together with the prompts")
    asked = [_drawn(prompt, choice) for prompt in prompts for choice in range(count)]
    texts = [_text(served, index, prompt, top, limits) for index, prompt in enumerate(asked)]
    streams = values.get("stream", False)
    options = values.get("stream_options", {})
    if options and not streams:
        raise wrong("stream_options", "needs stream to be true")
    usage = options.get("include_usage", False)
    return Asked(served, form, texts, count, streams, usage, top is not None)


def _drawn(prompt: Prompt, choice: int) -> Prompt:
    """A choice among several of a prompt: each has a seed of its own."""
    seed = prompt.sampling.seed
    own = None if seed is None else seed + choice
    return replace(prompt, sampling=replace(prompt.sampling, seed=own))


def _text(served: Served, index: int, prompt: Prompt, top: int | None, limits: Limits) -> Text:
    """A text that is ready to be continued."""
    try:
        text = Text(served.model, index, prompt)
    except RunError as error:
        raise refusal_of(error) from None
    length = len(text.ids)
    if limits.prompt is not None and length > limits.prompt:
        what = f"the prompt has {length} tokens, and this server takes {limits.prompt}"
        raise Refusal(400, what, code="context_length_exceeded")
    if top is not None:
        text.choose = NotingSampler(text.choose, served.token_texts, top)
    return text
