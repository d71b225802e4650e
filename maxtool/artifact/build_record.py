"""The manifest's ``build``: what an artifact was made from, with what, and how it was asked for.

Whatever may differ between two builds that give the same model is said here, and here alone. There
is no path, time, user or host in it: the same input gives the same bytes everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool import __version__
from maxtool.artifact.beside import CountBytes
from maxtool.artifact.contents import Contents
from maxtool.artifact.request import Wanted
from maxtool.artifact.user_module import ModuleReference
from maxtool.compiler.linking import linker_identity
from maxtool.compiler.versions import compiler_versions
from maxtool.files import sha256
from maxtool.quantization.mixes import Mix

# Of a request, what says where and not what: the sources are told by name, with their content.
PLACES = frozenset({"source", "origin", "output", "force", "weights"})


def described(
    request: Wanted, contents: Contents, sources: Mapping[str, object]
) -> dict[str, object]:
    """The section; ``sources`` are the files that were read, as :func:`hashed` tells them."""
    return {
        "options": {
            field.name: _plain(getattr(request, field.name))
            for field in fields(request)
            if field.name not in PLACES
        },
        "recipe": [{"file": file.name, "sha256": sha256(file)} for file in contents.recipe_files],
        "sources": dict(sources),
        "origin": dict(contents.origin) or None,
        "versions": {"maxtool": __version__, **compiler_versions(), "numpy": version("numpy")},
        "linker": linker_identity(contents.target.processor),
    }


def hashed(sources: Mapping[str, Path], progress: CountBytes) -> dict[str, dict[str, object]]:
    """Bytes and SHA-256 of files, by their names."""
    return {
        name: {"bytes": path.stat().st_size, "sha256": sha256(path, progress)}
        for name, path in sources.items()
    }


def hashed_text(executed: Mapping[Path, bytes]) -> dict[str, dict[str, object]]:
    """The same of code, as it was executed: the file may have changed since."""
    return {
        path.name: {"bytes": len(source), "sha256": hashlib.sha256(source).hexdigest()}
        for path, source in executed.items()
    }


def _digest(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _plain(value: object) -> object:
    """An option as JSON has it: files without their folders, types by name, sets in order."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():  # a recipe may be given as a file
            return PurePath(value).name if value.endswith(".toml") else value
        case Enum():
            return value.name
        case PurePath():
            return value.name
        case Mix():
            return value.name
        case ModuleReference():
            return f"{value.file.name}:{value.name}"
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case frozenset():
            return sorted(map(str, value))
        case np.ndarray():
            return {"dtype": value.dtype.name, "shape": list(value.shape), "sha256": _digest(value)}
        case tuple():
            return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return str(value)
