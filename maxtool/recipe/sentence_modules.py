"""The modules of a sentence-transformers model, as ``modules.json`` lists them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from maxtool.errors import MalformedFile
from maxtool.weights.jsonfile import parse_object
from maxtool.weights.source_file import read_file

MODULES = "modules.json"
MOST = 1 << 20  # bytes of each of the package's files


class SentenceModule(NamedTuple):
    """One module: the last part of its class's name, and the folder of its files."""

    kind: str
    path: str


def modules_of(folder: Path, kind: str | None = None) -> list[SentenceModule]:
    """The modules in their order, or those of a kind; none where there is no ``modules.json``."""
    file = folder / MODULES
    found = listed_modules(file) if file.is_file() else []
    return [module for module in found if kind in (None, module.kind)]


def listed_modules(file: Path) -> list[SentenceModule]:
    """The modules that a ``modules.json`` lists, in order."""
    return parse_modules(read_file(file, MOST, "modules"), file)


def parse_modules(raw: bytes, file: Path) -> list[SentenceModule]:
    """The modules that the content of a ``modules.json`` lists; ``file`` is named in errors."""
    listed = parse_object(b'{"modules":' + raw + b"}", file=file)["modules"]
    found = [_module(item) for item in listed] if isinstance(listed, list) else [None]
    if None in found:
        raise MalformedFile("not a list of modules, each with a type and a path", file=file)
    return [item for item in found if item is not None]


def _module(item: object) -> SentenceModule | None:
    match item:
        case {"type": str(kind), "path": str(path)} if _inside(path):
            return SentenceModule(kind.rpartition(".")[2], path)
    return None


def _inside(path: str) -> bool:
    return not path or (PurePosixPath(path).name == path and path not in ("..", "."))
