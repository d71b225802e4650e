"""The program's ``--chat``: one reply to a text, or a conversation on a terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from .chat import open_template
from .conversation import Conversation
from .errors import BadInput, BadUsage, RunError
from .model import Model
from .opening import open_model
from .options import TextOptions
from .sampling import Choose
from .specs import GENERATE
from .terminal import complain, emit, emit_json, note
from .text_output import (
    constraint_of,
    described,
    picker_of,
    read_text,
    report,
    say,
    show_pieces,
)
from .wrong_path import another_task

STDIN = Path("-")


def run_chat(options: TextOptions) -> None:
    """Reply to ``--prompt``, ``--file`` or what is piped in, else to what is typed."""
    typed = options.prompt is None and options.file is None and sys.stdin.isatty()
    if typed and options.images is not None:
        raise BadUsage("--chat with --image replies to one text: --prompt, --file or a pipe")
    if typed and (options.json or options.json_stream):
        known = "--prompt, --file or a pipe"
        raise BadUsage(f"--chat with --json or --json-stream replies to one text: {known}")
    model = open_model(options)
    if model.manifest.task != GENERATE:
        raise another_task(model.manifest.task)
    constraint = constraint_of(options, model)
    choose = picker_of(options, constraint)
    conversation = Conversation(
        model,
        open_template(model.manifest, options.chat_template, options.chat_template_kwargs),
        system=options.system,
        choose=choose,
        constraint=constraint,
        stops=options.stop or (),
    )
    if typed:
        talk(options, model, conversation)
    else:
        reply_once(options, model, conversation, choose)


def reply_once(
    options: TextOptions, model: Model, conversation: Conversation, choose: Choose
) -> None:
    """Show the reply to one text, whose tokens ``choose`` picks, and how fast it was."""
    text = options.prompt
    if text is None:
        text = read_text(options.file or STDIN, model.manifest.context)
    if not text:
        raise BadInput("there is no text to reply to")
    reply = conversation.ask(text, options.max_tokens, options.images or ())
    say(options, reply, choose, _most(options))
    if options.json:
        emit_json("maxtool.chat/1", described(reply, _most(options)))
    report(options, model, reply, _most(options))


def talk(options: TextOptions, model: Model, conversation: Conversation) -> None:
    """Reply to lines until the input ends; Ctrl-C ends a reply."""
    with suppress(ImportError):  # for its line editing and history
        import readline  # noqa: F401
    note(options, "Ctrl-D ends the conversation, Ctrl-C a reply.")
    while (text := _line()) is not None:
        if text.strip():
            _turn(options, model, conversation, text)


def _line() -> str | None:
    """A line of the user, or None at the end."""
    try:
        return input("> " if sys.stdout.isatty() else "")
    except EOFError:
        emit("\n")
        return None
    except KeyboardInterrupt:
        emit("\n")
        raise
    except UnicodeDecodeError:
        raise BadInput("the input is not UTF-8 text") from None


def _turn(options: TextOptions, model: Model, conversation: Conversation, text: str) -> None:
    try:
        reply = conversation.ask(text, options.max_tokens)
        if conversation.forgotten:
            note(options, "the context is full: the oldest messages are forgotten")
        show_pieces(options, reply)
    except RunError as error:
        complain(error)
    except KeyboardInterrupt:
        emit("\n")
    else:
        if reply.stopped(_most(options)) == "context":
            note(options, f"stopped: the context of {model.manifest.context} tokens is full")


def _most(options: TextOptions) -> int:
    return sys.maxsize if options.max_tokens is None else options.max_tokens
