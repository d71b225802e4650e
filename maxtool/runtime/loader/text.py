"""Text generated and shown as it comes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .model import Model, load
from .options import Options
from .stream import TextStream
from .terminal import emit_json, emit_text, note


def run_text(options: Options) -> None:
    """Generate, showing the text as it comes and the speed at the end."""
    model = load(options.folder, check=options.verify)
    ids = options.ids if options.ids is not None else model.encode(options.prompt or "")
    tokens = model.generate(
        ids,
        options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
    )
    show = (lambda _text: None) if options.json else emit_text
    stream = TextStream(model.decode, ids) if model.manifest.tokenizer_file else None
    prompt = options.prompt if options.prompt is not None else ""
    show(prompt)
    pieces, made, times = [prompt], [], [time.perf_counter()]
    for token in tokens:
        made.append(token)
        times.append(time.perf_counter())
        pieces.append(stream.push(token) if stream else f"{token} ")
        show(pieces[-1])
    pieces.append(stream.flush() if stream else "")
    show(pieces[-1] + "\n")
    report(options, model, ids, made, times, "".join(pieces))


def report(
    options: Options,
    model: Model,
    ids: Sequence[int],
    made: list[int],
    times: list[float],
    text: str,
) -> None:
    """Say why generation ended and how fast it was."""
    full = len(made) == model.room(len(ids))
    stopped = "context" if full else "length" if len(made) == options.max_tokens else "end"
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
