"""Texts embedded, and their vectors shown or written as they come."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from .arrays import check_output
from .embedding import Embedder, Text
from .errors import BadInput, BadUsage
from .memory import Array
from .npy import appended
from .opening import open_model
from .options import EmbedOptions
from .terminal import bar, emit, note, printable

SCHEMA = "maxtool.embeddings/1"


def check_embedding(options: EmbedOptions) -> None:
    """Refuse options that do not go together."""
    asked = (options.texts, options.file, options.ids, options.inputs)
    if sum([*(one is not None for one in asked), options.info, options.check]) != 1:
        raise BadUsage("give one of --text, --file, --ids, --inputs, --info and --check")
    if options.inputs is None and options.entry != "forward":
        raise BadUsage("--entry goes with --inputs")


def run_embedding(options: EmbedOptions) -> None:
    """Embed what is asked for: one JSON array a line, or a file, or one JSON object."""
    check_output(options)
    embedder = Embedder(open_model(options), options.batch)
    kept: list[list[float]] = []
    started = time.perf_counter()
    with ExitStack() as stack:
        take = _sink(options, embedder, kept, stack)
        show = stack.enter_context(bar(options, hidden=options.output is None))
        for vectors in embedder.stream(_texts(options, show)):
            take(vectors)
    _report(options, embedder, kept, time.perf_counter() - started)


def _sink(
    options: EmbedOptions, embedder: Embedder, kept: list[list[float]], stack: ExitStack
) -> Callable[[Array], None]:
    """What takes the vectors."""
    if options.output is not None:
        return stack.enter_context(appended(options.output, embedder.width))
    if options.json:
        return lambda vectors: kept.extend(vectors.tolist())
    return _emit_lines


def _emit_lines(vectors: Array) -> None:
    """A JSON array for each, with the fewest digits that say the number."""
    emit("".join(f"[{', '.join(map(str, vector))}]\n" for vector in vectors))


def _texts(options: EmbedOptions, show: Callable[[float], None]) -> Iterable[Text]:
    if options.ids is not None:
        return [options.ids]
    return options.texts or [] if options.file is None else _lines(options.file, show)


def _lines(path: Path, show: Callable[[float], None]) -> Iterator[str]:
    """The lines of a file, or of stdin for ``-``; ``show`` is told the share that was read."""
    try:
        stdin = str(path) == "-"
        with sys.stdin.buffer if stdin else path.open("rb") as stream:
            size, read = 0 if stdin else path.stat().st_size, 0
            for number, line in enumerate(stream, start=1):
                read += len(line)
                show(read / size if size else 0.0)
                yield _decoded(line, path, number)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no UTF-8 text, in line {number}") from None


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
