"""``maxtool verify``: every file of an output, held against what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from maxtool.cli import units
from maxtool.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maxtool.files.recorded import RecordedFile

SCHEMA = "maxtool.verify/1"
MANIFEST = "manifest.json"
# Lists of checksums, as convert --sha256 writes them: in a folder, and beside a file.
LIST, LIST_SUFFIX = "SHA256SUMS", ".sha256"


class Record(NamedTuple):
    """Files of a folder as they were recorded, and what else differs there."""

    folder: Path
    files: list[RecordedFile]
    others: list[str]


def verify(
    out: Output,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="The folder that maxtool compile wrote, or what convert --sha256 did.",
        ),
    ],
) -> None:
    """Check that every file of an output is the one that was written.

    Exits with 1 when a file differs, is missing or was added, with 3 when nothing was recorded.
    """
    from maxtool.errors import NegativeAnswer
    from maxtool.files.recorded import differences
    from maxtool.weights.files_read import note_read

    folder, files, others = _recorded(path)
    for file in files:
        note_read(folder / file.name)
    present = [folder / file.name for file in files if (folder / file.name).is_file()]
    total = sum(file.stat().st_size for file in present)
    with out.progress("reading", total) as meter:
        found = [*differences(folder, files, meter), *others]
    if out.json_mode:
        content = {"folder": str(path), "files": len(files), "bytes": total}
        out.data(SCHEMA, {**content, "differences": found})
    else:
        for difference in found:
            out.say(difference)
        checked = f"{units.plural(len(files), 'file')}, {units.binary_size(total)}"
        verdict = units.plural(len(found), "difference") if found else "as written"
        out.say(f"{path}: {checked}: {verdict}")
    if found:
        raise typer.Exit(NegativeAnswer.exit_code)


def _recorded(path: Path) -> Record:
    """The record of a path, wherever it stands."""
    from maxtool.errors import MissingFile
    from maxtool.files.recorded import read_list
    from maxtool.weights.files_read import note_read

    if (path / MANIFEST).is_file():
        return _of_artifact(path)
    beside = path.with_name(f"{path.name}{LIST_SUFFIX}")
    is_list = path.is_file() and (path.name == LIST or path.suffix == LIST_SUFFIX)
    for file in (path / LIST, beside, *([path] if is_list else [])):
        if file.is_file():
            note_read(file)
            files = read_list(file)
            added = _added(path, {LIST, *(each.name for each in files)}) if path.is_dir() else ()
            return Record(file.parent, files, [*added])
    what = "no checksums were recorded of this"
    hint = f"a compiled model has {MANIFEST}; convert --sha256 writes {LIST} or NAME{LIST_SUFFIX}"
    raise MissingFile(what, file=path, hint=hint)


def _of_artifact(folder: Path) -> Record:
    """The files of a manifest, which is read whole where all of them are there."""
    from maxtool.errors import translated
    from maxtool.files.recorded import RecordedFile
    from maxtool.runtime.loader.errors import RunError
    from maxtool.runtime.loader.manifest import CHECKSUM, Manifest, checksum

    try:
        root = Manifest(folder).root
    except RunError as error:
        lost = _with_lost_files(folder)
        if lost is None:
            raise translated(error) from None
        root = lost
    files = [RecordedFile(name, of["sha256"], of["bytes"]) for name, of in root["files"].items()]
    others = [*_added(folder, {MANIFEST, *root["files"]})]
    if root.get(CHECKSUM) != checksum(root):
        others = [f"{MANIFEST} is not the file that was written: its checksum is another", *others]
    return Record(folder, files, others)


def _with_lost_files(folder: Path) -> dict[str, Any] | None:
    """The manifest of an artifact some of whose files are gone; None if that is not what is wrong.

    It is refused before anything else of it is looked at, but its checksums still say of the other
    files what they were.
    """
    from maxtool.files.recorded import is_inside

    try:
        root = json.loads((folder / MANIFEST).read_bytes())
        sound = [
            is_inside(name) and isinstance(of["sha256"], str) and isinstance(of["bytes"], int)
            for name, of in root["files"].items()
        ]
        lost = [name for name in root["files"] if not (folder / name).is_file()]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return dict(root) if lost and all(sound) else None


def _added(folder: Path, known: set[str]) -> Iterator[str]:
    """Say which files a folder has beside those that are known."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name not in known:
            yield f"{name} is not one of its files"
