"""Prompts of a file continued side by side: a JSON object for each, in the order of the file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from .batch import Begun, begun, completed, refused
from .errors import BadInput, RunError, TooLong
from .model import Model
from .opening import open_model
from .options import TextOptions
from .prompt_lines import LABEL, label_of, read_line
from .prompts import Completion, Prompt
from .specs import GENERATE, TEXT_TO_TEXT
from .terminal import emit, note
from .text_lines import lines_of
from .text_output import grammar_of
from .tokens import check_text, most_bytes
from .wrong_path import another_task

SCHEMA = "maxtool.completion/1"
Read: TypeAlias = Callable[[str], tuple[Prompt, dict[str, object]]]
ESCAPE = 6  # bytes of a character in JSON for each of its own, at most


def run_prompts(options: TextOptions, path: Path) -> None:
    """Continue the prompts of a file; raises ``RunError`` in the end if some could not be."""
    options.sampling.check()
    model = open_model(options)
    if model.manifest.task not in (GENERATE, TEXT_TO_TEXT):
        raise another_task(model.manifest.task)
    longest = ESCAPE * most_bytes(model.manifest.context)
    lines = _Lines(model, lines_of(path, "the prompts", longest), _reader(options, model))
    shown = _InOrder()
    started = time.perf_counter()
    for completion in completed(model, iter(lines)):
        shown.put(completion.index, {**lines.asked(completion), **described(completion)})
    if shown.count or lines.error is None:
        _report(options, shown, time.perf_counter() - started)
    if lines.error is not None:
        raise lines.error
    if shown.failed:
        raise RunError(f"{shown.failed} of {_prompts(shown)} could not be continued")


def _reader(options: TextOptions, model: Model) -> Read:
    """Return what makes of a line a prompt, and what is shown of it; with ``--chat`` a question."""
    if options.chat and model.manifest.task != GENERATE:
        raise another_task(model.manifest.task)
    most = sys.maxsize if options.chat else model.usual_tokens
    most = most if options.max_tokens is None else options.max_tokens
    stops, grammar = tuple(options.stop or ()), grammar_of(options, model)
    usual = Prompt("", most, options.sampling, stops, options.chat, grammar)
    if not options.chat:
        return lambda line: _shown(*read_line(line, usual))
    from .chat import ChatEncoder, open_template

    manifest = model.manifest
    template = open_template(manifest, options.chat_template, options.chat_template_kwargs)
    encoder = ChatEncoder(template, model.tokenizer, manifest.context)
    before = [] if options.system is None else [{"role": "system", "content": options.system}]

    def question(line: str) -> tuple[Prompt, dict[str, object]]:
        prompt, label = read_line(line, usual)
        if not isinstance(prompt.text, str):
            raise BadInput("--chat replies to texts, not to token ids")
        check_text(prompt.text, "the prompt")
        ids = encoder.encode([*before, {"role": "user", "content": prompt.text}])
        return replace(prompt, text=ids), {**label, "prompt": prompt.text}

    return question


def _shown(prompt: Prompt, label: Mapping[str, object]) -> tuple[Prompt, dict[str, object]]:
    """The prompt of a line, and its fields of the answer."""
    name = "prompt" if isinstance(prompt.text, str) else "prompt_ids"
    return prompt, {**label, name: prompt.text}


def described(completion: Completion) -> dict[str, object]:
    """Return the JSON fields of what was made of a prompt."""
    error = completion.error
    return {
        "text": completion.text,
        "ids": list(completion.ids),
        "tokens": {"prompt": len(completion.prompt_ids), "made": len(completion.ids)},
        "stopped": completion.stopped,
        **({} if error is None else {"error": error.as_json()}),
    }


class _Lines:
    """The lines of a file as texts to continue: iterating begins each.

    Attributes:
        error: What ended the file before its end, if anything did.
    """

    def __init__(self, model: Model, lines: Iterator[str], read: Read) -> None:
        self.error: RunError | None = None
        self._model, self._lines, self._read = model, lines, read
        self._asked: dict[int, dict[str, object]] = {}

    def __iter__(self) -> Iterator[Begun]:
        number = 0
        while (line := self._next()) is not None:
            yield self._begun(number, line)
            number += 1

    def asked(self, completion: Completion) -> dict[str, object]:
        """Fields of what a line asks, forgotten then; without a text that is too long."""
        fields = self._asked.pop(completion.index)
        if not isinstance(completion.error, TooLong):
            return fields
        return {name: value for name, value in fields.items() if name == LABEL}

    def _next(self) -> str | None:
        """The next line; none where the file ends, or cannot be read on."""
        try:
            return next(self._lines, None)
        except RunError as error:
            self.error = error
            return None

    def _begun(self, number: int, line: str) -> Begun:
        try:
            prompt, self._asked[number] = self._read(line)
        except RunError as error:
            self._asked[number] = {**label_of(line), "prompt": line}
            return refused(number, Prompt(line), error)
        return begun(self._model, number, prompt)


class _InOrder:
    """Outcomes of lines, written in the order of the lines: an early outcome waits.

    Attributes:
        count: How many were put.
        failed: How many of them have an error.
        made: How many tokens were made.
    """

    def __init__(self) -> None:
        self.count = self.failed = self.made = 0
        self._next = 0
        self._early: dict[int, str] = {}

    def put(self, number: int, content: Mapping[str, object]) -> None:
        """Take the result of a line, and write all that is next."""
        self.count += 1
        self.failed += "error" in content
        ids = content.get("ids", [])
        self.made += len(ids) if isinstance(ids, list) else 0
        whole = {"schema": SCHEMA, "index": number, **content}
        self._early[number] = json.dumps(whole) + "\n"
        while self._next in self._early:
            emit(self._early.pop(self._next))
            self._next += 1


def _report(options: TextOptions, shown: _InOrder, seconds: float) -> None:
    """Print the speed on stderr."""
    speed = f", {shown.made / seconds:.1f} tokens/s" if shown.made else ""
    note(options, f"{_prompts(shown)}, {shown.made} tokens made in {seconds:.2f} s{speed}")


def _prompts(shown: _InOrder) -> str:
    """The number of prompts, in words."""
    return "1 prompt" if shown.count == 1 else f"{shown.count} prompts"
