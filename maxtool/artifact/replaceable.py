"""Rules for what ``--force`` may replace: an artifact, and nothing that is not part of it."""

from __future__ import annotations

import json
from pathlib import Path

from maxtool.errors import OutputExists
from maxtool.weights.formats.artifact import FILE, is_manifest
from maxtool.weights.names import listed

# What Python puts beside the loader when an artifact runs.
COMPILED = "__pycache__"
HINT = "choose another --output, or remove it yourself"


def check(output: Path) -> None:
    """Accept an output that is an artifact or an empty folder; refuse anything else."""
    if not output.exists():
        return
    if not output.is_dir():
        raise OutputExists("the output is a file, and is not replaced", file=output, hint=HINT)
    if strangers := _strangers(output):
        what = "the output folder holds files that do not belong to an artifact; it is not replaced"
        raise OutputExists(what, file=output, problems=listed(strangers), hint=HINT)


def _strangers(folder: Path) -> list[str]:
    """The files that the manifest does not name, sorted; all of them if there is no manifest."""
    files = (file for file in folder.rglob("*") if file.is_symlink() or not file.is_dir())
    names = {file.relative_to(folder).as_posix() for file in files}
    return sorted(name for name in names - _parts(folder) if not _is_compiled(name))


def _parts(folder: Path) -> set[str]:
    """The files of an artifact of whatever version, by their paths in the folder."""
    if not is_manifest(folder / FILE):
        return set()
    named = json.loads((folder / FILE).read_bytes()).get("files")
    return {FILE, *(named if isinstance(named, dict) else ())}


def _is_compiled(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return folder.rpartition("/")[2] == COMPILED and file.endswith(".pyc")
