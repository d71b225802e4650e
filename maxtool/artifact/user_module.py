"""``FILE.py:NAME``: the module that a user's file defines. The file is executed."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, isclass, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from maxtool.artifact.user_code import user_code
from maxtool.errors import InputError, MissingFile, UsageError
from maxtool.nn.base import ModuleBase
from maxtool.weights.files_read import note_read
from maxtool.weights.names import did_you_mean, listed

AnyModule = ModuleBase[..., Any]

GATHERING = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
REFERENCE = re.compile(r"(?P<file>.*\.py)(?::(?P<name>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModuleReference:
    """A module by the file that defines it, and its name there, which may have dots."""

    file: Path
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModule:
    """A module, and the bytes of its file as they were executed."""

    module: AnyModule
    source: bytes


def parse_reference(text: str) -> ModuleReference | None:
    """Read ``FILE.py:NAME``; None for the path of a checkpoint."""
    match = REFERENCE.fullmatch(text)
    if match is None:
        return None
    file, name = Path(match["file"]), match["name"]
    if not name or not all(part.isidentifier() for part in name.split(".")):
        what = f"{text} does not say which module of the file is meant"
        raise UsageError(what, hint=_suggestion(file))
    return ModuleReference(file, name)


def load_module(reference: ModuleReference) -> LoadedModule:
    """Execute the file, and return the module that the name stands for.

    The name may be a module, a class of modules that takes no arguments, or a function without
    arguments that returns a module.
    """
    source = _read(reference.file)
    defined = _executed(reference.file, source)
    with user_code(reference.name, reference.file):
        value = _attribute(reference, defined)
        needed = _required(value) if callable(value) and not isinstance(value, ModuleBase) else []
    if needed:
        what = f"{reference} takes arguments ({', '.join(needed)})"
        raise UsageError(what, hint="name a function without arguments that returns the module")
    return LoadedModule(_built(reference, value), source)


def _built(reference: ModuleReference, value: object) -> AnyModule:
    """The module that a name stands for, or what it returns."""
    if callable(value) and not isinstance(value, ModuleBase):
        with user_code(f"{reference.name}()", reference.file):
            value = value()
    if not isinstance(value, ModuleBase):
        what = f"{reference} is not a module of maxtool.nn but {type(value).__name__}"
        hint = "name a Module, a class of modules, or a function that returns one"
        raise UsageError(what, hint=hint)
    return value


def _executed(file: Path, source: bytes) -> ModuleType:
    """The file as an imported module."""
    name = f"maxtool_user_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}"
    spec = spec_from_file_location(name, file)
    if spec is None:  # never so for a name that ends in .py
        raise InputError("the file is not Python", file=file)
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look it up there
    with user_code(file.name, file):
        code = compile(source, str(file), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - what the command is for, and says so
    return module


def _read(file: Path) -> bytes:
    try:
        note_read(file)
        return file.read_bytes()
    except FileNotFoundError:
        raise MissingFile("no such file", file=file) from None
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror}", file=file) from None


def _attribute(reference: ModuleReference, module: ModuleType) -> object:
    """The object of that name."""
    value: object = module
    for part in reference.name.split("."):
        if not hasattr(value, part):
            known = _modules_in(module)
            near = did_you_mean(reference.name, known)
            hint = near or (f"its modules are {', '.join(listed(known))}" if known else None)
            raise UsageError(f"the file has no {reference.name!r}", file=reference.file, hint=hint)
        value = getattr(value, part)
    return value


def _modules_in(module: ModuleType) -> list[str]:
    """The names of modules, and of classes of modules, that a file itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, ModuleBase)
        or (
            isclass(value) and issubclass(value, ModuleBase) and value.__module__ == module.__name__
        )
    ]


def _required(function: Callable[..., object]) -> list[str]:
    """The parameters that must be given."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is Parameter.empty and parameter.kind not in GATHERING
    ]


def _suggestion(file: Path) -> str:
    """Suggest how to name a module of a file, with the classes that the file defines."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        body = []
    classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
    names = " or ".join(f"{file}:{name}" for name in classes[:3])
    return f"write {names or f'{file}:NAME'}"
