"""Text continued, and shown as it comes."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from .errors import reading
from .model import Model
from .opening import open_model
from .options import TextOptions
from .prompts import MAX_TOKENS
from .reply import Reply
from .terminal import emit_json, emit_text, note
from .tokens import most_bytes, too_long


def run_text(options: TextOptions) -> None:
    """Generate, showing the text as it comes and the speed at the end."""
    model = open_model(options)
    context = model.manifest.context
    prompt = options.prompt if options.file is None else read_text(options.file, context)
    ids = options.ids if options.ids is not None else model.encode(prompt or "")
    most = MAX_TOKENS if options.max_tokens is None else options.max_tokens
    tokens = model.generate(ids, most, **asdict(options.sampling))
    reply = Reply(model, ids, tokens, stops=options.stop or ())
    show(options, prompt or "")
    say(options, reply)
    if options.json:
        content = described(reply, most)
        emit_json("maxtool.generation/1", {**content, "text": (prompt or "") + reply.text})
    report(options, model, reply, most)


def show(options: TextOptions, text: str) -> None:
    """Write generated text, unless a JSON object is to hold all of it."""
    if not options.json:
        emit_text(text)


def say(options: TextOptions, reply: Reply) -> None:
    """Show a reply as it comes."""
    for piece in reply:
        show(options, piece)
    show(options, "\n")


def read_text(path: Path, context: int | None) -> str:
    """The text of a file, or of stdin for ``-``, without the line end that editors put behind it.

    No more is read than the context can hold.
    """
    most = most_bytes(context)
    with reading("the text", path):
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as stream:
            raw = stream.read(most + 1)
        if len(raw) > most:
            raise too_long(f"the text has more than {most} bytes", context)
        text = raw.decode()
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def described(reply: Reply, max_tokens: int) -> dict[str, object]:
    """Return the JSON fields of a generation, besides its text."""
    return {
        "prompt_ids": list(reply.ids),
        "ids": reply.made,
        "text": reply.text,
        "stopped": reply.stopped(max_tokens),
        "tokens_per_second": reply.speed(),
    }


def report(options: TextOptions, model: Model, reply: Reply, max_tokens: int) -> None:
    """Print the speed of a generation on stderr, and whether the context ended it."""
    if reply.stopped(max_tokens) == "context":
        note(options, f"stopped: the context of {model.manifest.context} tokens is full")
    speeds = reply.speed().items()
    said = ", ".join(f"{name} {value:.1f} tokens/s" for name, value in speeds if value)
    counts = f"{len(reply.ids)} tokens read, {len(reply.made)} made"
    note(options, f"{counts}; {said or 'too few to time'}")
