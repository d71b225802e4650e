"""Options of the programs that run a model, for ``run.py`` and for the commands of maxtool.

This file imports nothing, so that commands can show their help without NumPy.
"""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """An option of a command line."""

    name: str  # without the dashes
    type: str  # a key of METAVARS, or flag
    help: str  # what it says, or does: a phrase, without a capital or a period
    metavar: str | None = None  # the name of its value in the help; that of its type if None
    default: str | float | None = None
    short: str | None = None  # its one-letter name


METAVARS = {
    "text": "TEXT",
    "texts": "TEXT",
    "path": "PATH",
    "ids": "IDS",
    "object": "JSON",
    "integer": "N",
    "number": "X",
}

COMMON = (
    Option("inputs", "path", "arrays to run an entry on", "NPZ"),
    Option("entry", "text", "the entry to run", "NAME", "forward"),
    Option("info", "flag", "say what the model is"),
    Option("check", "flag", "compare with the outputs recorded by compile --check"),
    Option("device", "text", "the device: cpu, cuda or cuda:1; what it was compiled for", "NAME"),
    Option("force", "flag", "replace an existing --output"),
    Option("no-verify", "flag", "skip the checksums"),
)
GENERATION = (
    Option("prompt", "text", "text to continue"),
    Option("file", "path", "a file of text to continue; - is stdin"),
    Option("prompts", "path", "a file with a prompt on each line, to NDJSON; - is stdin", "FILE"),
    Option("image", "texts", "a file of an image, alone or with a text; may be repeated", "FILE"),
    Option("label", "texts", "what an image may show, in words; may be repeated"),
    Option("audio", "texts", "a WAV file to transcribe; may be repeated", "FILE"),
    Option("language", "text", "what is spoken in it, such as en; detected if absent", "CODE"),
    Option("task", "text", "transcribe, or translate into English; transcribe", "NAME"),
    Option("timestamps", "flag", "show when each part was said"),
    Option("ids", "ids", "token ids to continue, such as 1,2,3"),
    Option("chat", "flag", "converse: reply to --prompt, --file, --prompts, or each line"),
    Option("system", "text", "instructions to the model before a conversation"),
    Option("chat-template", "path", "a Jinja file to use with --chat"),
    Option("chat-template-kwargs", "object", "further variables of the template"),
    Option("max-tokens", "integer", "tokens to make: 100, with --chat what fits"),
    Option("temperature", "number", "0 is greedy", "T", 0.0),
    Option("top-k", "integer", "draw from the K likeliest tokens", "K"),
    Option("top-p", "number", "draw from the likeliest tokens with the share P", "P"),
    Option("min-p", "number", "draw from tokens with P times the best token's share", "P"),
    Option("repetition-penalty", "number", "above 1: repeat less of the text so far", "R", 1.0),
    Option("stop", "texts", "end before this text; may be repeated"),
    Option("seed", "integer", "make drawing repeatable"),
    Option("json-schema", "path", "write JSON that follows the schema of a file", "FILE"),
    Option("json-stream", "flag", "print a JSON object for each token, and one at the end"),
    *COMMON,
    Option("output", "path", "where the outputs of --inputs go", "NPZ"),
)
EMBEDDING = (
    Option("text", "texts", "a text; may be repeated"),
    Option("file", "path", "a file with a text on each line; - is stdin"),
    Option("prompt", "text", "the model's prompt to put before each text, or none", "NAME"),
    Option("query", "text", "what each text is scored with, by a model of pairs"),
    Option("instruction", "text", "what such a model judges by, in words; its usual prompt"),
    Option("image", "texts", "a file of an image; may be repeated", "FILE"),
    Option("label", "texts", "what an image may show, in words; may be repeated"),
    Option("top-k", "integer", "labels of a text or an image to show", "K"),
    Option("ids", "ids", "the token ids of a text, such as 1,2,3"),
    Option("output", "path", "where vectors go, NAME.npy; NAME.npz with --inputs", short="o"),
    Option("batch", "integer", "texts or images in one call", default=32),
    *COMMON,
)
