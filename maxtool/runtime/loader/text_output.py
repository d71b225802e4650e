"""Text continued, and shown as it comes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from .constraint import Constraint, picker
from .errors import BadInput, reading
from .likelihood import LikelihoodSampler
from .model import Model
from .opening import open_model
from .options import TextOptions
from .reply import Reply
from .sampling import Choose
from .session import Session
from .specs import TEXT_TO_TEXT
from .terminal import emit_json, emit_text, note
from .token_lines import write_tokens
from .tokens import most_bytes, too_long

if TYPE_CHECKING:
    from .json_schema import Grammar
    from .placed_images import PlacedImage


def run_text(options: TextOptions) -> None:
    """Generate, showing the text as it comes and the speed at the end."""
    model = open_model(options)
    context = model.manifest.context
    prompt = options.prompt if options.file is None else read_text(options.file, context)
    ids, images = _read(options, model, prompt or "")
    most = model.usual_tokens if options.max_tokens is None else options.max_tokens
    constraint = constraint_of(options, model)
    choose = picker_of(options, constraint)
    count = model.check_prompt(ids, most)
    if images:  # which sources have none of
        tokens = Session(model).generate(ids, count, choose, images)
    else:
        tokens = model.session().generate(ids, count, choose)
    # What is written behind a source does not go on where that ends.
    alone = model.manifest.task == TEXT_TO_TEXT
    before = "" if alone else prompt or ""
    stops = options.stop or ()
    reply = Reply(model, ids, tokens, stops=stops, alone=alone, constraint=constraint)
    show(options, before)
    say(options, reply, choose, most)
    if options.json:
        content = described(reply, most)
        emit_json("maxtool.generation/1", {**content, "text": before + reply.text})
    report(options, model, reply, most)


def _read(
    options: TextOptions, model: Model, prompt: str
) -> tuple[Sequence[int], Sequence[PlacedImage]]:
    """The ids to continue, and the images among them."""
    if options.images is not None:
        return model.illustrated(prompt, options.images)
    return (model.encode(prompt) if options.ids is None else options.ids), ()


def grammar_of(options: TextOptions, model: Model) -> Grammar | None:
    """The grammar that ``--json-schema`` asks for, if it is given."""
    file = options.json_schema
    if file is None:
        return None
    from .json_schema import read_schema

    try:
        return model.grammar(read_schema(file))
    except BadInput as error:
        error.file = error.file or str(file)
        raise


def constraint_of(options: TextOptions, model: Model) -> Constraint | None:
    """The constraint of a text, if ``--json-schema`` asks for one."""
    grammar = grammar_of(options, model)
    return None if grammar is None else grammar.constraint()


def picker_of(options: TextOptions, constraint: Constraint | None) -> Choose:
    """Return what picks tokens; with ``--json-stream`` it notes how likely they are."""
    choose = picker(options.sampling, constraint)
    return LikelihoodSampler(choose) if options.json_stream else choose


def show(options: TextOptions, text: str) -> None:
    """Write generated text, unless JSON is to hold all of it."""
    if not options.json and not options.json_stream:
        emit_text(text)


def say(options: TextOptions, reply: Reply, choose: Choose, max_tokens: int) -> None:
    """Show a reply as it comes: its text, or its tokens as ``choose`` picks them."""
    if isinstance(choose, LikelihoodSampler):
        write_tokens(reply, choose, max_tokens)
    else:
        show_pieces(options, reply)


def show_pieces(options: TextOptions, reply: Reply) -> None:
    """Show the text of a reply as it comes."""
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
