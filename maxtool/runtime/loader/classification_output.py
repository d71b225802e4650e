"""Texts told apart, or scored in pairs, and what comes out shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import NamedTuple

from .classifier import Classifier
from .entries import EntryRunner
from .errors import BadUsage, DoesNotFit
from .labels import SCHEMA, SCORE, SHOWN, best, show
from .memory import Array
from .options import EmbedOptions
from .terminal import emit, note, printable
from .text_rows import Text
from .texts_asked import count_of, texts_of, told_cuts

SHORT = 60  # letters of a text above its labels


class Read(NamedTuple):
    """A text, and the model's logits and scores for it."""

    text: str
    logits: Array
    scores: Array


def run_classification(options: EmbedOptions, model: EntryRunner) -> None:
    """Print the best labels of each text; where there is one label, its score on a line."""
    shown = SHOWN if options.top_k is None else options.top_k
    if shown < 1:
        raise BadUsage(f"--top-k {shown}: it is at least 1")
    if options.prompt is not None and model.manifest.pair_template is None:
        raise DoesNotFit("a prompt is put before texts that become vectors: these are scored")
    classifier = Classifier(
        model, options.batch, prompt=options.prompt, instruction=options.instruction
    )
    started = time.perf_counter()
    if options.json:
        _emit_json(options, classifier, shown, started)
    else:
        _emit_lines(options, classifier, shown)
    told_cuts(options, classifier)
    took = f"{time.perf_counter() - started:.2f} s"
    note(options, f"{count_of(classifier)} of {classifier.tokens} tokens took {took}")


def _read(options: EmbedOptions, classifier: Classifier) -> Iterator[Read]:
    """Yield the texts with what comes out, in their order."""
    waiting: list[str] = []

    def noted() -> Iterator[Text]:
        for text in texts_of(options, classifier, lambda _share: None):
            waiting.append(text if isinstance(text, str) else " ".join(map(str, text)))
            yield text

    for logits in classifier.stream(noted(), options.query):
        texts, waiting[:] = waiting[: len(logits)], waiting[len(logits) :]
        yield from map(Read, texts, logits, classifier.scores(logits))


def _emit_lines(options: EmbedOptions, classifier: Classifier, shown: int) -> None:
    single = options.file is None and len(options.texts or [""]) == 1
    shares = classifier.is_shared
    for one in _read(options, classifier):
        if classifier.width == 1:
            emit(f"{float(one.scores[0])}\n")
            continue
        emit("" if single else f"{printable(one.text[:SHORT])}\n")
        show(best(one.scores, classifier.labels, shown, SCORE), SCORE, shares=shares)


def _emit_json(options: EmbedOptions, classifier: Classifier, shown: int, started: float) -> None:
    texts = [
        {
            "text": one.text,
            "labels": best(one.scores, classifier.labels, shown, SCORE),
            "logits": one.logits.tolist(),
        }
        for one in _read(options, classifier)
    ]
    facts = {"count": classifier.texts, "tokens": classifier.tokens}
    asked = {} if options.query is None else {"query": options.query}
    cut, seconds = classifier.truncated, time.perf_counter() - started
    content = {"schema": SCHEMA, **facts, "truncated": cut, "seconds": seconds, **asked}
    emit(json.dumps({**content, "texts": texts}) + "\n")
