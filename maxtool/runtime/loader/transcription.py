"""Speech written down: windows of a sound, one after the other, as transformers' ``generate`` does.

A window is as long as the model looks at at once. Where one sound takes several, the model writes
times, too, and the next window begins at the last of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .audio_spec import AudioSpec, audio_spec
from .entries import EntryRunner
from .errors import BadInput, DoesNotFit, RunError
from .log_mel import log_mel
from .memory import Array
from .resampling import resampled
from .speech_entries import FEATURES
from .speech_rules import SpeechRules
from .speech_spec import TRANSCRIBE, SpeechSpec, speech_spec

Decode = Callable[[Sequence[int]], str]
NO_TOKEN = 1 << 31  # a number above that of every token
STRIDE = 2  # frames that become one step of time


@dataclass(frozen=True)
class Segment:
    """A part of what was said."""

    start: float  # seconds
    end: float
    ids: tuple[int, ...]  # tokens, those of time included
    text: str


class Sound(NamedTuple):
    """A spectrogram: of one window at least, behind whose end there is silence."""

    frames: Array  # float32 [bands, frames]
    content: int  # frames that have some of the sound


class Transcriber:
    """A model of speech, and the memory of one sound.

    Args:
        model: What was compiled.
        decode: From tokens to their text.

    Raises:
        DoesNotFit: If the artifact does not say how sounds are prepared, or texts begun.
    """

    def __init__(self, model: EntryRunner, decode: Decode) -> None:
        self.audio, self.speech = specs_of(model)
        self._model, self._decode = model, decode
        self._state = model.new_state(batch=1)
        self._encoded: tuple[Array, int] | None = None  # what the state holds

    def sound(self, samples: Array, rate: int) -> Sound:
        """The spectrogram of samples of one channel, of which ``rate`` make a second.

        Raises:
            BadInput: If there are none.
        """
        if not len(samples):
            raise BadInput("the sound has no samples")
        same = resampled(samples, rate, self.audio.rate)
        content = -(-len(same) // self.audio.hop)
        missing = self.audio.samples - len(same)
        frames = log_mel(np.pad(same, (0, missing)) if missing > 0 else same, self.audio)
        return Sound(frames, min(content, frames.shape[1]))

    def language_of(self, sound: Sound) -> str | None:
        """The likeliest language of the first window; None where the model knows one."""
        if not self.speech.languages:
            return None
        self._encode(sound.frames, 0)
        logits = self._read([self.speech.start], 0)
        codes = list(self.speech.languages)
        return codes[int(logits[[self.speech.languages[code] for code in codes]].argmax())]

    def transcribe(
        self,
        sound: Sound,
        language: str | None = None,
        task: str = TRANSCRIBE,
        *,
        times: bool = False,
    ) -> Iterator[Segment]:
        """Yield what is said in a sound, part by part.

        Args:
            sound: Its spectrogram.
            language: What is spoken; the likeliest of those that the model knows if None.
            task: ``transcribe``, or ``translate`` into English.
            times: Whether a sound that fits one window is cut into parts, too.

        Raises:
            BadUsage: If the model knows no such language or task.
            DoesNotFit: If it writes no times, and these are needed.
        """
        self.speech.check(language, task)
        has_times = times or sound.frames.shape[1] > self.audio.frames
        if has_times and self.speech.first_time is None:
            raise DoesNotFit("the model writes no times, which more than one window needs")
        spoken = self.language_of(sound) if language is None else language
        prompt = self.speech.prompt(spoken, task, times=has_times)
        for part in self._parts(sound, prompt, times=has_times):
            end = part.end if has_times else min(part.end, sound.content * self._step)
            yield replace(part, end=end)

    @property
    def _step(self) -> float:
        """Seconds from one frame to the next."""
        return self.audio.hop / self.audio.rate

    def _parts(self, sound: Sound, prompt: Sequence[int], *, times: bool) -> Iterator[Segment]:
        """Yield the parts of one window after the other, each of which begins where one ended.

        A model that is told to write no times may write some all the same.
        """
        first = NO_TOKEN if self.speech.first_time is None else self.speech.first_time
        seek, step = 0, self._step
        while seek < sound.content:
            self._encode(sound.frames, seek)
            ids = self._written(prompt, times=times)
            length = min(self.audio.frames, sound.frames.shape[1] - seek)
            parts, moved = cut(ids, first, length)
            for begins, ends, some in parts:
                start, end = ((seek + STRIDE * time) * step for time in (begins, ends))
                yield Segment(start, end, tuple(some), self._text(some))
            seek += max(1, moved)

    def _encode(self, frames: Array, start: int) -> None:
        """Encode the window that begins at a frame; behind the last there is nothing."""
        if self._encoded is not None and self._encoded[0] is frames and self._encoded[1] == start:
            return
        some = frames[:, start : start + self.audio.frames]
        missing = self.audio.frames - some.shape[1]
        whole = np.pad(some, ((0, 0), (0, missing)))[None]
        self._encoded = None
        self._model.run("encode", {FEATURES: whole}, self._state)
        self._encoded = frames, start

    def _read(self, ids: Sequence[int], position: int) -> Array:
        """The logits behind tokens that begin at a position."""
        inputs = {"input_ids": [list(ids)], "position": np.array([position], np.int32)}
        entry = "decode" if position and len(ids) == 1 else "prefill"
        logits: Array = self._model.run(entry, inputs, self._state)["logits"][0]
        if not np.isfinite(logits).all():
            raise RunError("what the model gives is not finite numbers")
        return logits

    def _written(self, prompt: Sequence[int], *, times: bool) -> list[int]:
        """The tokens of a window, without the one at the end."""
        rules, text = SpeechRules(self.speech, times=times), list[int]()
        context = self._model.manifest.context or 0
        most = min(self.speech.most or context, context - len(prompt))
        logits, position = self._read(prompt, 0), len(prompt)
        while len(text) < most:
            token = rules.choose(logits, text)
            if token == self.speech.end:
                break
            text.append(token)
            if len(text) < most:
                logits = self._read([token], position)
                position += 1
        return text

    def _text(self, ids: Sequence[int]) -> str:
        first = self.speech.first_time
        return self._decode([token for token in ids if first is None or token < first])


def specs_of(model: EntryRunner) -> tuple[AudioSpec, SpeechSpec]:
    """Return how a model's sounds are prepared, and its texts begun.

    Raises:
        DoesNotFit: If the artifact does not say so.
    """
    manifest = model.manifest
    if manifest.audio is None or manifest.speech is None:
        file = "preprocessor_config.json" if manifest.audio is None else "generation_config.json"
        what = "the model takes spectrograms, and nothing says how sounds become texts"
        raise DoesNotFit(what, hint=f"compile it with its {file}, or give --inputs")
    return audio_spec(manifest.audio), speech_spec(manifest.speech)


def cut(
    ids: Sequence[int], first: int, frames: int
) -> tuple[list[tuple[int, int, list[int]]], int]:
    """The parts of a window's tokens, and how many frames on the next window begins.

    A part ends where two times follow each other. What follows the last such pair is of a part that
    the window cut, and is read again, unless it ends with a single time, behind which nothing is
    said. Without a pair, all is one part.

    Args:
        ids: The tokens.
        first: The one of time 0.
        frames: Of the window.

    Returns:
        Of each part the steps of time at which it begins and ends, and its tokens.
    """
    is_time = [token >= first for token in ids]
    ends = [place for place, pair in enumerate(pairwise(is_time), start=1) if all(pair)]
    if not ends:
        last = next((token - first for token in reversed(ids) if token > first), frames // STRIDE)
        return [(0, last, list(ids))], frames
    is_whole = is_time[-2:] == [False, True]
    if is_whole:
        ends.append(len(ids))
    else:
        ends[-1] += 1  # both times of the pair are of the last part
    parts = []
    for start, end in pairwise([0, *ends]):
        some = list(ids[start:end])
        closing = -2 if end == ends[-1] and not is_whole else -1
        parts.append((some[0] - first, some[closing] - first, some))
    return parts, frames if is_whole else STRIDE * (ids[ends[-1] - 2] - first)
