"""Texts embedded, and their vectors shown or written as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from .arrays import check_output
from .embedder import Embedder, Text
from .memory import Array
from .opening import open_model
from .options import EmbedOptions
from .terminal import bar, emit, note, printable
from .text_lines import lines_of
from .tokens import most_bytes
from .written_arrays import appended

SCHEMA = "maxtool.embeddings/1"


def run_embedding(options: EmbedOptions) -> None:
    """Embed what is asked for: one JSON array a line, or a file, or one JSON object."""
    check_output(options)
    embedder = Embedder(open_model(options), options.batch)
    kept: list[list[float]] = []
    started = time.perf_counter()
    most = 4 * most_bytes(embedder.context) + 4  # so that what is cut off is noticed
    with ExitStack() as stack:
        take = _sink(options, embedder, kept, stack)
        show = stack.enter_context(bar(options, hidden=options.output is None))
        for vectors in embedder.stream(_texts(options, most, show)):
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


def _texts(options: EmbedOptions, most: int, show: Callable[[float], None]) -> Iterable[Text]:
    if options.ids is not None:
        return [options.ids]
    if options.file is None:
        return options.texts or []
    return lines_of(options.file, "the texts", most, show)


def _report(
    options: EmbedOptions, embedder: Embedder, kept: list[list[float]], seconds: float
) -> None:
    count, cut = embedder.texts, embedder.truncated
    texts = "1 text" if count == 1 else f"{count} texts"
    if cut:
        were = "was" if cut == 1 else "were"
        note(options, f"{cut} of {texts} {were} cut to the context of the model")
    if options.json:
        facts = {"count": count, "dimensions": embedder.width, "tokens": embedder.tokens}
        where = {"embeddings": kept} if options.output is None else {"output": str(options.output)}
        content = {"schema": SCHEMA, **facts, "truncated": cut, "seconds": seconds, **where}
        emit(json.dumps(content) + "\n")
    elif options.output is not None:
        emit(f"{printable(str(options.output))} float32[{count}, {embedder.width}]\n")
    note(options, f"{texts} of {embedder.tokens} tokens took {seconds:.2f} s")
