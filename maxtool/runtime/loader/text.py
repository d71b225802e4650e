"""Text generated and shown as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .errors import BadInput
from .model import Model, load
from .options import Options
from .stream import Stops, TextStream
from .terminal import emit_json, emit_text, note


def run_text(options: Options) -> None:
    """Generate, showing the text as it comes and the speed at the end."""
    model = load(options.folder, check=options.verify)
    prompt = options.prompt if options.file is None else read_text(options.file)
    ids = options.ids if options.ids is not None else model.encode(prompt or "")
    tokens = model.generate(ids, options.max_tokens, **asdict(options.sampling))
    show = (lambda _text: None) if options.json else emit_text
    stream = TextStream(model.decode, ids) if model.manifest.tokenizer_file else None
    stops = Stops(options.stop or ())
    show(prompt or "")
    pieces, made, times = [prompt or ""], [], [time.perf_counter()]
    for token in tokens:
        made.append(token)
        times.append(time.perf_counter())
        pieces.append(stops.push(stream.push(token) if stream else f"{token} "))
        show(pieces[-1])
        if stops.found is not None:
            break
    pieces.append(stops.push(stream.flush() if stream else "") + stops.flush())
    show(pieces[-1] + "\n")
    report(options, model, ids, made, times, "".join(pieces), stops.found)


def read_text(path: Path) -> str:
    """The text of a file, or of stdin for ``-``."""
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return raw.decode()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no UTF-8 text, at byte {error.start}") from None


def report(
    options: Options,
    model: Model,
    ids: Sequence[int],
    made: list[int],
    times: list[float],
    text: str,
    stop: str | None,
) -> None:
    """Say why generation ended and how fast it was."""
    full = len(made) == model.room(len(ids)) and stop is None
    stopped = "context" if full else "length" if len(made) == options.max_tokens else "end"
    stopped = stopped if stop is None else "stop"
    if full:
        note(options, f"stopped: the context of {model.manifest.context} tokens is full")
    speed = {"prefill": rate(len(ids), times[:2]), "decode": rate(len(made) - 1, times[1:])}
    if options.json:
        emit_json(
            "maxtool.generation/1",
            {
                "prompt_ids": list(ids),
                "ids": made,
                "text": text,
                "stopped": stopped,
                "tokens_per_second": speed,
            },
        )
    said = ", ".join(f"{name} {value:.1f} tokens/s" for name, value in speed.items() if value)
    note(options, f"{len(ids)} tokens read, {len(made)} made; {said or 'too few to time'}")


def rate(count: int, times: Sequence[float]) -> float | None:
    """Things per second between the first and the last time."""
    seconds = times[-1] - times[0] if times else 0.0
    return count / seconds if count > 0 and seconds > 0 else None
