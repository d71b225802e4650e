"""Texts embedded, and their vectors shown or written as they come."""

from __future__ import annotations

import codecs
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from .arrays import check_output
from .embedder import Embedder, Text
from .errors import BadInput, reading
from .memory import Array
from .opening import open_model
from .options import EmbedOptions
from .terminal import bar, emit, note, printable
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
    return options.texts or [] if options.file is None else _lines(options.file, most, show)


def _lines(path: Path, most: int, show: Callable[[float], None]) -> Iterator[str]:
    """The lines of a file, or of stdin for ``-``; the beginnings of those over ``most`` bytes."""
    with reading("the texts", path):
        stdin = str(path) == "-"
        with sys.stdin.buffer if stdin else path.open("rb") as stream:
            size = 0 if stdin else path.stat().st_size
            for number, (line, read) in enumerate(_bounded(stream, most), start=1):
                show(read / size if size else 0.0)
                cut = len(line) == most and not line.endswith(b"\n")
                yield _decoded(line, path, number, whole=not cut)


def _bounded(stream: BinaryIO, most: int) -> Iterator[tuple[bytes, int]]:
    """The beginning of each line, and how many bytes were read with it."""
    read = 0
    while line := stream.readline(most):
        read, end = read + len(line), line
        while len(end) == most and not end.endswith(b"\n"):
            end = stream.readline(most)
            read += len(end)
        yield line, read


def _decoded(line: bytes, path: Path, number: int, *, whole: bool) -> str:
    """The text of a line; half a character at its end, where it was cut, is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(line, final=whole).rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadInput(f"no UTF-8 text in line {number}", file=path) from None


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
