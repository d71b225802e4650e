"""The files that a user's module was made from: its own, and those that it imports from its folder.

Imports are read from the code and looked up among what was imported. What else the process has
imported, for another module, is none of them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

from maxtool.weights.files_read import note_read

INIT = "__init__.py"


def note_imports(file: Path, source: bytes) -> None:
    """Note as read the files below the folder of ``file`` that its code imported, and theirs."""
    folder = file.parent
    found: dict[Path, None] = {}
    waiting = [(source, "")]
    while waiting:
        for name in _imported(*waiting.pop()):
            path = _place(name, folder)
            if name in sys.modules and path is not None and path not in found:
                found[path] = None
                note_read(path)
                package = name if path.name == INIT else name.rpartition(".")[0]
                waiting.append((path.read_bytes(), package))


def _place(name: str, folder: Path) -> Path | None:
    """The file of a module in a folder that imports are looked for in; None if it has none."""
    path = folder.joinpath(*name.split("."))
    return next(filter(Path.is_file, (path / INIT, path.with_name(f"{path.name}.py"))), None)


def _imported(source: bytes, package: str) -> Iterator[str]:
    """Names that may be of modules in the imports of some code, with the packages they are in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            start = resolve_name(f"{dots}{node.module or ''}", package or None)
            names = [start, *(f"{start}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
