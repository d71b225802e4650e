"""Texts embedded, and their vectors shown or written as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack

from .arrays import check_output
from .embedder import Embedder
from .errors import DoesNotFit
from .memory import Array
from .opening import open_model
from .options import EmbedOptions
from .specs import CLASSIFY
from .terminal import bar, emit, note, printable
from .texts_asked import count_of, texts_of, told_cuts
from .written_arrays import appended

SCHEMA = "maxtool.embeddings/1"


def run_embedding(options: EmbedOptions) -> None:
    """Embed what is asked for: one JSON array a line, or a file, or one JSON object."""
    check_output(options)
    model = open_model(options)
    if CLASSIFY in model.manifest.entries and options.output is None:
        from .classification_output import run_classification

        run_classification(options, model)
        return
    if options.query is not None:
        raise DoesNotFit("vectors are made of single texts, and pairs with a --query are scored")
    if options.instruction is not None:
        raise DoesNotFit("an --instruction is for models that score pairs, with a --query")
    embedder = Embedder(model, options.batch, prompt=options.prompt)
    kept: list[list[float]] = []
    started = time.perf_counter()
    with ExitStack() as stack:
        take = _sink(options, embedder, kept, stack)
        show = stack.enter_context(bar(options, hidden=options.output is None))
        for vectors in embedder.stream(texts_of(options, embedder, show)):
            take(vectors)
    _report(options, embedder, kept, time.perf_counter() - started)


def _sink(
    options: EmbedOptions, embedder: Embedder, kept: list[list[float]], stack: ExitStack
) -> Callable[[Array], None]:
    """Return a function that takes the vectors."""
    if options.output is not None:
        return stack.enter_context(appended(options.output, embedder.width))
    if options.json:
        return lambda vectors: kept.extend(vectors.tolist())
    return _emit_lines


def _emit_lines(vectors: Array) -> None:
    """A JSON array for each, with the fewest digits that say the number."""
    emit("".join(f"[{', '.join(map(str, vector))}]\n" for vector in vectors))


def _report(
    options: EmbedOptions, embedder: Embedder, kept: list[list[float]], seconds: float
) -> None:
    count, cut, texts = embedder.texts, embedder.truncated, count_of(embedder)
    told_cuts(options, embedder)
    if options.json:
        facts = {"count": count, "dimensions": embedder.width, "tokens": embedder.tokens}
        where = {"embeddings": kept} if options.output is None else {"output": str(options.output)}
        content = {"schema": SCHEMA, **facts, "truncated": cut, "seconds": seconds, **where}
        emit(json.dumps(content) + "\n")
    elif options.output is not None:
        emit(f"{printable(str(options.output))} float32[{count}, {embedder.width}]\n")
    note(options, f"{texts} of {embedder.tokens} tokens took {seconds:.2f} s")
