"""The program: what ``run.py`` and ``maxtool run`` do."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .errors import BadUsage, MachineLacks, RunError
from .manifest import Manifest
from .options import CommonOptions, EmbedOptions, TextOptions, parse, parse_embedding
from .sampling import Sampling
from .specs import DUAL_ENCODER, EMBED, IMAGE
from .terminal import complain, emit, emit_json, open_streams, printable

BULKY = {
    "schema",
    "module",
    "entries",
    "kernels",
    "state",
    "weights",
    "files",
    "sources",
    "tokenizer",
}


def execute(options: TextOptions | EmbedOptions) -> None:
    """Run the program, and import no more than what is asked for needs; raises ``RunError``."""
    if isinstance(options, EmbedOptions):
        check_embedding(options)
    else:
        check(options)
    if options.info:
        show_info(options)
    elif options.check:
        from .check_report import run_check

        run_check(options)
    elif options.inputs is not None:
        from .arrays import run_arrays

        run_arrays(options, options.inputs)
    elif options.images is not None and not reads_text(options):
        from .image_output import run_images

        run_images(options, options.images)
    elif isinstance(options, EmbedOptions):
        from .embedding_output import run_embedding

        run_embedding(options)
    elif options.audio is not None:
        from .audio_output import run_audio

        run_audio(options, options.audio)
    elif options.prompts is not None:
        from .prompts_output import run_prompts

        run_prompts(options, options.prompts)
    elif options.chat:
        from .chat_cli import run_chat

        run_chat(options)
    else:
        from .text_output import run_text

        run_text(options)


def reads_text(options: TextOptions | EmbedOptions) -> bool:
    """Return whether a text is to be continued, or replied to, in which images may stand."""
    if isinstance(options, EmbedOptions):
        return False
    return options.chat or options.prompt is not None or options.file is not None


def check(options: TextOptions) -> None:
    """Refuse options that do not go together."""
    texts = (options.prompt, options.file, options.prompts)
    text = sum(source is not None for source in texts)
    alone = None if reads_text(options) else options.images
    arrays = (options.ids, options.inputs, alone, options.audio)
    if options.images is not None and options.prompts is not None:
        raise BadUsage("--image goes with --prompt or --file, or without a text; not --prompts")
    sources = (*(source is not None for source in arrays), options.info, options.check)
    other = sum(sources)
    if options.chat and (other or text > 1):
        raise BadUsage("--chat goes with --prompt, --file, --prompts, or none of them")
    if not options.chat and text + other != 1:
        known = "--prompt, --file, --prompts, --chat, --ids, --inputs, --image, --audio"
        raise BadUsage(f"give one of {known}, --info and --check")
    check_audio(options)
    check_labels(options)
    more = (options.system, options.chat_template, options.chat_template_kwargs)
    if not options.chat and any(option is not None for option in more):
        raise BadUsage("--system, --chat-template and --chat-template-kwargs go with --chat")
    if options.json and options.prompts is not None:
        raise BadUsage("--prompts prints a JSON object on each line, without --json")
    if options.json_stream and (options.json or options.prompts is not None or any(sources[1:])):
        raise BadUsage("--json-stream goes with --prompt, --file, --ids or --chat, without --json")
    if options.json_schema is not None and any(sources[1:]):
        raise BadUsage("--json-schema goes with --prompt, --file, --prompts, --ids or --chat")
    if options.inputs is None and options.images is None and options.output:
        raise BadUsage("--output goes with --inputs or --image")
    if options.inputs is None and options.entry != "forward":
        raise BadUsage("--entry goes with --inputs")


def check_audio(options: TextOptions) -> None:
    """Refuse options of sounds without one, and those of texts with one."""
    spoken = (options.language is not None, options.task is not None, options.timestamps)
    if options.audio is None:
        if any(spoken):
            raise BadUsage("--language, --task and --timestamps go with --audio")
        return
    drawn = options.sampling != Sampling() or options.max_tokens is not None
    if drawn or options.stop is not None:
        what = "--audio writes the likeliest tokens to the end"
        raise BadUsage(f"{what}, without options of how texts are continued")


def check_embedding(options: EmbedOptions) -> None:
    """Refuse options that do not go together."""
    asked = (options.texts, options.file, options.ids, options.inputs, options.images)
    if sum([*(option is not None for option in asked), options.info, options.check]) != 1:
        raise BadUsage("give one of --text, --file, --image, --ids, --inputs, --info and --check")
    if options.inputs is None and options.entry != "forward":
        raise BadUsage("--entry goes with --inputs")
    if options.prompt is not None and options.texts is None and options.file is None:
        raise BadUsage("--prompt goes with --text or --file")
    check_labels(options)
    if options.query is not None and options.texts is None and options.file is None:
        raise BadUsage("--query goes with --text or --file")


def check_labels(options: CommonOptions) -> None:
    """Refuse labels without an image that may show what they say, and where vectors are asked."""
    if options.labels is None:
        return
    if options.images is None:
        raise BadUsage("--label goes with --image")
    if options.output is not None:
        raise BadUsage("--label says what an image shows, and --output takes its vector")


def show_info(options: CommonOptions) -> None:
    """Print what the manifest says of the model."""
    manifest = Manifest(options.folder)
    if options.verify:
        manifest.verify()
    summary = {key: value for key, value in manifest.root.items() if key not in BULKY}
    summary["weights_bytes"] = sum(spec.nbytes() for spec in manifest.weights)
    for name, entry in manifest.entries.items():
        sides = (", ".join(map(str, side)) for side in (entry.inputs, entry.outputs))
        summary[name] = " -> ".join(sides)
    if options.json:
        emit_json("maxtool.info/1", summary)
        return
    for key, value in summary.items():
        text = value if isinstance(value, str) else json.dumps(value)
        emit(printable(f"{key + ':':<15} {text}") + "\n")


def main(folder: Path, argv: Sequence[str] | None = None) -> int:
    """Run the program on the artifact in ``folder``; the exit code."""
    open_streams()
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        execute((parse_embedding if embeds(folder) else parse)(folder, arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except (RunError, OSError, MemoryError) as error:
        return fail(_told(error), as_json="--json" in arguments)
    return 0


def _told(error: RunError | OSError | MemoryError) -> RunError:
    """An error as the program tells it."""
    if isinstance(error, RunError):
        return error
    if isinstance(error, MemoryError):
        return MachineLacks("the machine has too little memory for this")
    return MachineLacks(f"the system refuses: {error.strerror or error}", file=error.filename)


def embeds(folder: Path) -> bool:
    """Return whether the artifact makes vectors; one that cannot be read is refused later."""
    try:
        return Manifest(folder).task in (EMBED, IMAGE, DUAL_ENCODER)
    except RunError:
        return False


def fail(error: RunError, *, as_json: bool) -> int:
    """Report an error; returns its exit code."""
    complain(error)
    if as_json:
        with suppress(OSError):  # perhaps stdout is what went wrong
            emit_json("maxtool.error/1", {"error": error.as_json()})
    return error.exit_code
