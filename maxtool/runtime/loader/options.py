"""Command lines of the programs, and what they ask for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from .errors import BadUsage
from .option_table import EMBEDDING, GENERATION, METAVARS, Option
from .sampling import Sampling


@dataclass(frozen=True)
class CommonOptions:
    """Options of every program."""

    folder: Path
    file: Path | None = None
    ids: list[int] | None = None
    images: list[str] | None = None
    labels: list[str] | None = None
    inputs: Path | None = None
    output: Path | None = None
    entry: str = "forward"
    force: bool = False
    info: bool = False
    check: bool = False
    verify: bool = True
    device: str | None = None
    json: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class TextOptions(CommonOptions):
    """Options of a model that writes text."""

    audio: list[str] | None = None
    language: str | None = None
    task: str | None = None
    timestamps: bool = False
    prompt: str | None = None
    prompts: Path | None = None
    chat: bool = False
    system: str | None = None
    chat_template: Path | None = None
    chat_template_kwargs: dict[str, object] | None = None
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: list[str] | None = None
    json_schema: Path | None = None
    json_stream: bool = False


@dataclass(frozen=True)
class EmbedOptions(CommonOptions):
    """Options of a model that computes embeddings."""

    texts: list[str] | None = None
    prompt: str | None = None
    query: str | None = None
    instruction: str | None = None
    batch: int = 32
    top_k: int | None = None


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are errors like all others."""

    def error(self, message: str) -> NoReturn:
        """Raise ``BadUsage``."""
        raise BadUsage(message, hint="--help lists the options")


def parse(folder: Path, argv: Sequence[str] | None) -> TextOptions:
    """The options of the command line, for the artifact in ``folder``."""
    options = _parsed("Run the compiled model in this folder.", GENERATION, argv)
    sampling = Sampling(**{one.name: options.pop(one.name) for one in fields(Sampling)})
    return TextOptions(folder=folder, sampling=sampling, **options)


def parse_embedding(folder: Path, argv: Sequence[str] | None) -> EmbedOptions:
    """The options of the command line, for an artifact that makes embeddings."""
    given = _parsed("Make embeddings with the compiled model in this folder.", EMBEDDING, argv)
    return EmbedOptions(folder=folder, texts=given.pop("text"), **given)


def _parsed(about: str, options: Sequence[Option], argv: Sequence[str] | None) -> dict[str, Any]:
    parser = Parser(description=about, allow_abbrev=False)
    for option in options:
        _add(parser, option)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    given = vars(parser.parse_args(argv))
    several = {"images": given.pop("image"), "labels": given.pop("label")}
    return {"verify": not given.pop("no_verify"), **several, **given}


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    if option.type == "flag":
        parser.add_argument(*names, action="store_true", help=option.help)
        return
    text = option.help if option.default is None else f"{option.help} ({option.default})"
    parser.add_argument(
        *names,
        metavar=option.metavar or METAVARS[option.type],
        default=option.default,
        help=text,
        **READING[option.type],
    )


def integers(text: str) -> list[int]:
    """Integers separated by commas or spaces; raises ``BadUsage`` for anything else."""
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise BadUsage(f"--ids takes integers, not {text!r:.80}") from None


def json_object(text: str) -> dict[str, object]:
    """A JSON object; raises ``BadUsage`` for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise BadUsage(f"--chat-template-kwargs takes a JSON object, not {text!r:.80}")
    return content


# By the type of an option: how argparse reads its value.
READING: dict[str, dict[str, Any]] = {
    "text": {},
    "texts": {"action": "append"},
    "path": {"type": Path},
    "ids": {"type": integers},
    "object": {"type": json_object},
    "integer": {"type": int},
    "number": {"type": float},
}
