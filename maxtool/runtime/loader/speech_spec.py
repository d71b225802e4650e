"""Tokens by which a model of speech is told what to do, as the manifest says them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import BadUsage
from .manifest_fields import named_tokens, token, tokens

TRANSCRIBE = "transcribe"  # the task that every model has


@dataclass(frozen=True)
class SpeechSpec:
    """Tokens before a text, and tokens that are not written."""

    start: int  # before every text
    end: int  # behind it
    # Before a text without times; the tokens behind this one are times. None where there are none.
    no_timestamps: int | None
    languages: Mapping[str, int]  # empty where the model knows one language
    tasks: Mapping[str, int]
    forced: tuple[int, ...]  # behind the first token, where no language is chosen
    suppressed: tuple[int, ...]  # never written
    suppressed_first: tuple[int, ...]  # never written first
    latest_first: int | None  # steps of time that the first time may be at most
    most: int | None  # tokens of a text, besides those before it

    @property
    def first_time(self) -> int | None:
        """The token of time 0."""
        return None if self.no_timestamps is None else self.no_timestamps + 1

    @property
    def tokens(self) -> Iterator[int]:
        """All tokens that are named."""
        yield from (self.start, self.end, *self.languages.values(), *self.tasks.values())
        yield from (*self.suppressed, *self.suppressed_first, *self.forced)
        if self.no_timestamps is not None:
            yield self.no_timestamps

    def check(self, language: str | None, task: str) -> None:
        """Refuse a language or a task that the model does not know: ``BadUsage`` lists them."""
        if not self.languages and (language is not None or task != TRANSCRIBE):
            hint = "leave --language and --task out"
            raise BadUsage("the model writes one language, as it is spoken", hint=hint)
        known = {"language": sorted(self.languages), "task": sorted(self.tasks) or [TRANSCRIBE]}
        for what, asked in (("language", language), ("task", task)):
            if asked is not None and asked not in known[what]:
                hint = f"it knows {', '.join(known[what])}"
                raise BadUsage(f"the model knows no {what} {asked!r:.40}", hint=hint)

    def prompt(self, language: str | None, task: str, *, times: bool) -> list[int]:
        """The tokens before a text."""
        ids = [self.start]
        if language is not None:
            ids.append(self.languages[language])
            ids += [self.tasks[task]] if task in self.tasks else []
        else:
            ids += [token for token in self.forced if token != self.no_timestamps]
        if not times and self.no_timestamps is not None:
            ids.append(self.no_timestamps)
        return ids


def speech_spec(item: Mapping[str, Any]) -> SpeechSpec:
    """The tokens that a manifest says; ValueError that names what is wrong."""
    start, end = token(item, "start"), token(item, "end")
    if start is None or end is None:
        raise ValueError("'start' and 'end' are not both there")
    return SpeechSpec(
        start=start,
        end=end,
        no_timestamps=token(item, "no_timestamps"),
        languages=named_tokens(item, "languages"),
        tasks=named_tokens(item, "tasks"),
        forced=tokens(item, "forced"),
        suppressed=tokens(item, "suppressed"),
        suppressed_first=tokens(item, "suppressed_first"),
        latest_first=token(item, "latest_first"),
        most=token(item, "most"),
    )
