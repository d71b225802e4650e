"""What the program is asked to do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NoReturn

from .errors import BadUsage
from .sampling import Sampling


@dataclass(frozen=True)
class Common:
    """What every program can be asked to do."""

    folder: Path
    file: Path | None = None
    ids: list[int] | None = None
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
class Options(Common):
    """What a model that writes text is asked to do."""

    prompt: str | None = None
    chat: bool = False
    system: str | None = None
    chat_template: Path | None = None
    chat_template_kwargs: dict[str, object] | None = None
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: list[str] | None = None


@dataclass(frozen=True)
class EmbedOptions(Common):
    """What a model that makes embeddings is asked to do."""

    texts: list[str] | None = None
    batch: int = 32


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are errors like all others."""

    def error(self, message: str) -> NoReturn:
        """Raise ``BadUsage``."""
        raise BadUsage(message, hint="--help lists the options")


def parse(folder: Path, argv: Sequence[str] | None) -> Options:
    """The options of the command line, for the artifact in ``folder``."""
    about = "Run the compiled model in this folder."
    parser = Parser(description=about, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--prompt", help="text to continue")
    what.add_argument("--file", type=Path, help="a file of text to continue; - is stdin")
    what.add_argument("--ids", type=integers, help="token ids to continue, such as 1,2,3")
    what.add_argument("--inputs", type=Path, metavar="NPZ", help="arrays to run an entry on")
    _add_looks(what)
    add = parser.add_argument
    add("--chat", action="store_true", help="converse: reply to --prompt, --file, or each line")
    add("--system", metavar="TEXT", help="what the model is told before a conversation")
    add("--chat-template", type=Path, metavar="PATH", help="a Jinja file to use with --chat")
    add("--chat-template-kwargs", type=json_object, metavar="JSON", help="what it is given too")
    add("--max-tokens", type=int, metavar="N", help="tokens to make (100; what fits with --chat)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0, the default, is greedy")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest with the share P")
    add("--min-p", type=float, metavar="P", help="draw from tokens with P times the best share")
    add("--repetition-penalty", type=float, default=1.0, metavar="R", help="above 1: repeat less")
    add("--stop", action="append", metavar="TEXT", help="end before this text; may be repeated")
    add("--seed", type=int, help="make drawing repeatable")
    add("--output", type=Path, metavar="NPZ", help="where the outputs of --inputs go")
    _add_common(parser)
    given = vars(parser.parse_args(argv))
    sampling = Sampling(**{one.name: given.pop(one.name) for one in fields(Sampling)})
    return Options(folder=folder, sampling=sampling, **given)


def parse_embedding(folder: Path, argv: Sequence[str] | None) -> EmbedOptions:
    """The options of the command line, for an artifact that makes embeddings."""
    about = "Make embeddings with the compiled model in this folder."
    parser = Parser(description=about, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--text", dest="texts", action="append", metavar="TEXT", help="a text; may be repeated"
    )
    what.add_argument("--file", type=Path, help="a file with a text on each line; - is stdin")
    what.add_argument("--ids", type=integers, help="the token ids of a text, such as 1,2,3")
    what.add_argument("--inputs", type=Path, metavar="NPZ", help="arrays to run an entry on")
    _add_looks(what)
    add = parser.add_argument
    add("-o", "--output", type=Path, metavar="PATH", help="NAME.npy; NAME.npz with --inputs")
    add("--batch", type=int, default=32, metavar="N", help="texts in one call (32)")
    _add_common(parser)
    return EmbedOptions(folder=folder, **vars(parser.parse_args(argv)))


def _add_looks(what: argparse._MutuallyExclusiveGroup) -> None:
    """What any program can do but run the model on what a user gives."""
    what.add_argument("--info", action="store_true", help="say what this model is")
    what.add_argument("--check", action="store_true", help="compare with its recorded outputs")


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--entry", default="forward", help="the entry to run (forward)")
    add("--device", metavar="NAME", help="cpu, cuda or cuda:1; what the model was compiled for")
    add("--force", action="store_true", help="replace an existing --output")
    add("--no-verify", dest="verify", action="store_false", help="skip the checksums")
    add("--json", action="store_true", help="print one JSON object")
    add("-q", "--quiet", action="store_true", help="no notes on stderr")


def integers(text: str) -> list[int]:
    """Integers separated by commas or spaces."""
    return [int(part) for part in text.replace(",", " ").split()]


def json_object(text: str) -> dict[str, object]:
    """A JSON object; raises ``ValueError`` for what is none."""
    try:
        found = json.loads(text)
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object: {text!r:.80}")
    return found
