"""Prompts of a file continued side by side: a JSON object for each, in the order of the file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from .batch import generate_many
from .errors import BadInput, RunError
from .model import Model
from .opening import open_model
from .options import TextOptions
from .prompt_lines import read_line
from .prompts import MAX_TOKENS, Completion, Prompt
from .specs import GENERATE
from .terminal import emit, note
from .text_lines import lines_of
from .tokens import check_text, most_bytes
from .wrong_path import another_task

SCHEMA = "maxtool.completion/1"
Read: TypeAlias = Callable[[str], tuple[Prompt, dict[str, object]]]
ESCAPE = 6  # bytes of a character in JSON for each of its own, at most


def run_prompts(options: TextOptions, path: Path) -> None:
    """Continue the prompts of a file; raises ``RunError`` in the end if some could not be."""
    options.sampling.check()
    model = open_model(options)
    if model.manifest.task != GENERATE:
        raise another_task(model.manifest.task)
    read = _reader(options, model)
    longest = ESCAPE * most_bytes(model.manifest.context)
    shown, asked = _InOrder(), _Asked()
    started = time.perf_counter()

    def prompts() -> Iterator[Prompt]:
        for number, line in enumerate(lines_of(path, "the prompts", longest)):
            try:
                prompt, label = read(line)
            except RunError as error:
                shown.put(number, {"prompt": line, "stopped": "error", "error": error.as_json()})
            else:
                asked.add(number, label)
                yield prompt

    for completion in generate_many(model, prompts()):
        number, label = asked.take(completion.index)
        shown.put(number, {**label, **described(completion)})
    _report(options, shown, time.perf_counter() - started)


def _reader(options: TextOptions, model: Model) -> Read:
    """Return what makes a prompt of a line; with ``--chat`` a question that is replied to."""
    most = sys.maxsize if options.chat else MAX_TOKENS
    most = most if options.max_tokens is None else options.max_tokens
    usual = Prompt("", most, options.sampling, tuple(options.stop or ()), options.chat)
    if not options.chat:
        return lambda line: read_line(line, usual)
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


def described(completion: Completion) -> dict[str, object]:
    """Return the JSON fields of a completion."""
    text, error = completion.prompt.text, completion.error
    return {
        **({"prompt": text} if isinstance(text, str) else {"prompt_ids": list(text)}),
        "text": completion.text,
        "ids": list(completion.ids),
        "tokens": {"prompt": len(completion.prompt_ids), "made": len(completion.ids)},
        "stopped": completion.stopped,
        **({} if error is None else {"error": error.as_json()}),
    }


class _Asked:
    """The lines that prompts come from: their numbers, and the labels that they have."""

    def __init__(self) -> None:
        self._count = 0
        self._lines: dict[int, tuple[int, Mapping[str, object]]] = {}

    def add(self, number: int, label: Mapping[str, object]) -> None:
        """Note the line of the next prompt."""
        self._lines[self._count] = number, label
        self._count += 1

    def take(self, index: int) -> tuple[int, Mapping[str, object]]:
        """The line of a prompt, which is not asked for again."""
        return self._lines.pop(index)


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
    """Print the speed on stderr; raise ``RunError`` if there were errors."""
    prompts = "1 prompt" if shown.count == 1 else f"{shown.count} prompts"
    speed = f", {shown.made / seconds:.1f} tokens/s" if shown.made else ""
    note(options, f"{prompts}, {shown.made} tokens made in {seconds:.2f} s{speed}")
    if shown.failed:
        raise RunError(f"{shown.failed} of {prompts} could not be continued")
