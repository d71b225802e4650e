"""Sounds transcribed, and shown as they are: texts, parts with their times, or JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .memory import Array
from .opening import open_model
from .options import TextOptions
from .speech_spec import TRANSCRIBE
from .terminal import emit, emit_json, emit_text, note, printable
from .transcription import Segment, Transcriber
from .wav_files import read_wav

SCHEMA = "maxtool.transcription/1"


def run_audio(options: TextOptions, names: Sequence[str]) -> None:
    """Transcribe files, one after the other."""
    transcriber = open_model(options).transcriber()
    transcriber.speech.check(options.language, options.task or TRANSCRIBE)
    told = []
    for name in names:
        started = time.perf_counter()
        samples, rate = read_wav(Path(name))
        if len(names) > 1 and not options.json:
            emit(f"{printable(name)}\n")
        told.append({"audio": name, **_transcribed(options, transcriber, samples, rate)})
        seconds, spent = len(samples) / rate, time.perf_counter() - started
        note(options, f"{seconds:.1f} s of sound took {spent:.2f} s")
    if options.json:
        emit_json(SCHEMA, {"count": len(told), "audio": told})


def _transcribed(
    options: TextOptions, transcriber: Transcriber, samples: Array, rate: int
) -> dict[str, object]:
    """Transcribe a sound, and show it; what JSON has of it."""
    sound = transcriber.sound(samples, rate)
    language = options.language
    if language is None and (language := transcriber.language_of(sound)) is not None:
        note(options, f"language: {language}")
    task, times = options.task or TRANSCRIBE, options.timestamps
    parts = list(_shown(options, transcriber.transcribe(sound, language, task, times=times)))
    return {
        "language": language,
        "seconds": len(samples) / rate,
        "text": "".join(part.text for part in parts).strip(),
        "segments": [_as_json(part) for part in parts],
    }


def _shown(options: TextOptions, parts: Iterable[Segment]) -> Iterator[Segment]:
    """Show each part as it comes, unless JSON is to hold all of them."""
    begun = False
    for part in parts:
        if options.json:
            pass
        elif options.timestamps:
            emit_text(f"[{_clock(part.start)} --> {_clock(part.end)}]  {part.text.strip()}\n")
        else:
            emit_text(part.text if begun else part.text.lstrip())
        begun = begun or bool(part.text.strip())
        yield part
    if not options.json and not options.timestamps:
        emit("\n")


def _clock(seconds: float) -> str:
    """Minutes, seconds and thousandths; hours where there are any."""
    whole = round(seconds * 1000)
    minutes, rest = divmod(whole, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{f'{hours:02}:' if hours else ''}{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"


def _as_json(part: Segment) -> dict[str, object]:
    """A part of what is said, its times to thousandths of a second."""
    times = {"start": round(part.start, 3), "end": round(part.end, 3)}
    return {**times, "text": part.text, "ids": list(part.ids)}
