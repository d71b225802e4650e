"""``FILE.py:NAME``: the module that a user's file defines. The file is executed.

Prints of that code go to stderr, since stdout is for data; its errors become one message with the
lines of the user's own files.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, isclass, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from maxtool.errors import InputError, MaxtoolError, MissingFile, ModelMismatch, UsageError
from maxtool.nn.base import Base
from maxtool.weights.names import did_you_mean, listed

AnyModule = Base[..., Any]

REFERENCE = re.compile(r"(?P<file>.*\.py)(?::(?P<name>.*))?", re.DOTALL)
HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class ModuleReference:
    """A module by the file that defines it.

    Attributes:
        file: The Python file.
        name: The name in it, which may have dots.
    """

    file: Path
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


def parse_reference(text: str) -> ModuleReference | None:
    """Read ``FILE.py:NAME``; None for the path of a checkpoint.

    Raises:
        UsageError: If the name is missing or cannot be one.
    """
    match = REFERENCE.fullmatch(text)
    if match is None:
        return None
    file, name = Path(match["file"]), match["name"]
    if not name or not all(part.isidentifier() for part in name.split(".")):
        what = f"{text} does not say which module of the file is meant"
        raise UsageError(what, hint=_suggestion(file))
    return ModuleReference(file, name)


def load_module(reference: ModuleReference) -> AnyModule:
    """Execute the file, and return the module that the name stands for.

    The name may be a module, a class of modules that takes no arguments, or a function without
    arguments that returns a module.

    Raises:
        MissingFile: If the file is not there.
        InputError: If it cannot be read.
        UsageError: If the name is not in it, or stands for something else.
        ModelMismatch: If the file, the class or the function raises an error.
    """
    value = _attribute(reference, _executed(reference.file))
    if isinstance(value, Base):
        return value
    if not callable(value):
        raise _not_a_module(reference, value)
    if needed := _required(value):
        what = f"{reference} takes arguments ({', '.join(needed)})"
        raise UsageError(what, hint="name a function without arguments that returns the module")
    with user_code(f"{reference.name}()", reference.file):
        built = value()
    if not isinstance(built, Base):
        raise _not_a_module(reference, built)
    return built


@contextmanager
def user_code(what: str, file: Path) -> Iterator[None]:
    """Run code of a user: its prints go to stderr, its errors become one of ours.

    Args:
        what: The name of what runs, for the message.
        file: The file that it comes from.

    Raises:
        ModelMismatch: If it raises an error, or wants to end the process.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (MaxtoolError, KeyboardInterrupt, MemoryError):
        raise
    except SyntaxError as error:
        where = f"line {error.lineno}: {(error.text or '').strip()}"
        raise _failed(what, error.filename or file, error, [where]) from error
    except (Exception, SystemExit) as error:
        raise _failed(what, file, error, list(_lines(error))) from error


def _failed(what: str, file: str | Path, error: BaseException, lines: list[str]) -> ModelMismatch:
    said = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return ModelMismatch(f"{what} raises {text}", file=file, problems=lines)


def _lines(error: BaseException) -> Iterator[str]:
    """The lines of a traceback that are neither this package's nor Python's, outermost first."""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_file() and not path.resolve().is_relative_to(HERE):
            yield f"{path.name}, line {frame.lineno}, in {frame.name}: {frame.line}"


def _executed(file: Path) -> ModuleType:
    """The file as an imported module, which finds others beside it; nothing is compiled to disk."""
    _require_file(file)
    name = f"maxtool_user_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:  # never so for a name that ends in .py
        raise InputError("the file is not Python", file=file)
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look it up there
    beside, before = str(file.resolve().parent), sys.dont_write_bytecode
    sys.path.insert(0, beside)
    sys.dont_write_bytecode = True
    try:
        with user_code(file.name, file):
            spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(beside)
    return module


def _require_file(file: Path) -> None:
    try:
        file.read_bytes()
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
        if isinstance(value, Base)
        or (isclass(value) and issubclass(value, Base) and value.__module__ == module.__name__)
    ]


def _required(function: Callable[..., object]) -> list[str]:
    """The parameters that must be given."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return []
    gathering = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is Parameter.empty and parameter.kind not in gathering
    ]


def _not_a_module(reference: ModuleReference, value: object) -> UsageError:
    what = f"{reference} is not a module of maxtool.nn but {type(value).__name__}"
    hint = "name a Module, a class of modules, or a function that returns one"
    return UsageError(what, hint=hint)


def _suggestion(file: Path) -> str:
    """How a module of a file is named, with the classes that the file defines."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        body = []
    classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
    names = " or ".join(f"{file}:{name}" for name in classes[:3])
    return f"write {names or f'{file}:NAME'}"
