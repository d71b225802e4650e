"""Conversions that go on where an earlier run was interrupted.

What a run finished is used if it was made of the same things: options, recipe, source and version.
Small source files are known by their content, large ones by size and time of modification, so that
the folder that they lie in does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from maxtool import __version__
from maxtool.conversion.layout import Layout
from maxtool.conversion.request import Request
from maxtool.conversion.writers import WRITERS
from maxtool.errors import ChangedFile, VerificationFailed
from maxtool.files import FinishedPart, Journal
from maxtool.files.finished import MadeOf
from maxtool.quantization.scheme import files_read
from maxtool.recipe import Recipe
from maxtool.recipe.load import files_of
from maxtool.weights.source_file import Stamp, open_source, stamp

# Of source files, to be read once more for a checksum.
SMALL_BYTES = 16 << 20

ONE_FILE = "the output is one file: if it is interrupted, nothing of it is kept for --resume"


def new_journal(
    request: Request, layout: Layout, recipe: Recipe | None, seen: Mapping[Path, Stamp]
) -> Journal | None:
    """The journal of a conversion; None if none is wanted, or the output has no parts to keep.

    Args:
        request: What was asked.
        layout: The files of the output.
        recipe: The recipe, if one is used.
        seen: The source's files, as they were when they were opened.
    """
    if not request.resume or len(layout.files) < 2:
        return None
    return Journal(made_of(request, layout, recipe, seen))


def made_of(
    request: Request, layout: Layout, recipe: Recipe | None, seen: Mapping[Path, Stamp]
) -> MadeOf:
    """Description of what an output is made of, on which runs that make it together must agree."""
    return {**plan_identity(request, layout, recipe), **_sources(request, seen)}


def plan_identity(request: Request, layout: Layout, recipe: Recipe | None) -> dict[str, str]:
    """Return what decides the bytes of an output beside its source, each part by its name."""
    used = {}
    if recipe is not None:
        used = {"the recipe": " ".join([recipe.name, *map(_content, files_of(recipe))])}
    tables = {"names, types and metadata of the output": _tables(request, layout)}
    return {"maxtool": __version__, **_options(request), **used, **tables}


def kept_part(
    journal: Journal,
    path: Path,
    warn: Callable[[str], None],
    progress: Callable[[int], None] | None,
) -> FinishedPart | None:
    """The part that an earlier run finished at a path, if it is there and its checksum is right."""
    part, read = journal.part(path), 0

    def advance(nbytes: int) -> None:
        nonlocal read
        read += nbytes
        if progress is not None:
            progress(nbytes)

    if part is None or part.is_at(path, advance):
        return part
    advance(-read)
    path.unlink(missing_ok=True)
    warn(f"{path.name} was damaged since an earlier run finished it, and is written anew")
    return None


@contextmanager
def trusted(journal: Journal | None) -> Iterator[None]:
    """Keep no part for a later run if the source changes, or a part turns out to be wrong."""
    try:
        yield
    except (ChangedFile, VerificationFailed):
        if journal is not None:
            journal.drop()
        raise


def _options(request: Request) -> dict[str, str]:
    """The options that decide what is in the files, as a user gives them."""
    edits, quantized = request.edits, request.quantize
    given: dict[str, Sequence[str]] = {
        "--to": [request.target],
        "--dtype": [request.dtype.name] if request.dtype else [],
        "--quantize": [quantized.mix.name] if quantized else [],
        "--shard-size": [str(request.shard_size)] if request.shard_size else [],
        "--split-max-size": [str(request.split_max_size)] if request.split_max_size else [],
        "--include": edits.include,
        "--exclude": edits.exclude,
        "--rename": [f"{old}={new}" for old, new in edits.renames],
        "--cast": [f"{glob}={dtype.name}" for glob, dtype in edits.casts],
        "--ignore-config": sorted(request.ignore),
        "--name": [request.name] if request.name else [],
        "--no-recipe": ["given"] if request.plain else [],
        "--allow-nonfinite": ["given"] if request.allow_nonfinite else [],
    }
    return {option: ", ".join(values) for option, values in given.items() if values}


def _sources(request: Request, seen: Mapping[Path, Stamp]) -> dict[str, str]:
    """The files that are read, by name."""
    beside = {path: stamp(path) for path in files_read(request.quantize)}
    said: dict[str, list[str]] = {}
    for path, status in {**seen, **beside}.items():
        said.setdefault(f"the source's {path.name}", []).append(_identity(path, status))
    return {name: ", ".join(sorted(files)) for name, files in said.items()}


def _identity(path: Path, status: Stamp) -> str:
    if status.size > SMALL_BYTES:
        return f"{status.size} bytes of {status.modified} ns, too many to be read for a checksum"
    with open_source(path, status) as file:
        return hashlib.sha256(file.read(0, file.size)).hexdigest()


def _tables(request: Request, layout: Layout) -> str:
    """A checksum of the headers of all files, and of the small files beside them."""
    digest = hashlib.sha256()
    for file in layout.files:
        header, _ = WRITERS[request.target].header(
            [spec for spec, _ in file.tensors], file.metadata
        )
        digest.update(hashlib.sha256(header).digest())
    for name, data in sorted(layout.beside.items()):
        digest.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(data).digest())
    return digest.hexdigest()


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
