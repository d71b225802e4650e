"""Code of a user, executed: its prints go to stderr, and its errors become one message.

Such code may raise anything, an exception that cannot be printed included. Only an interrupt and a
lack of memory pass through, as do the errors of this package.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path

from maxtool.errors import MaxtoolError, ModelMismatch

HERE = Path(__file__).resolve().parents[1]
MAX_TEXT = 300
"""Characters of an exception, or of a line of code, that a message repeats."""
MAX_LINES = 8
"""Lines of a traceback that a message repeats: half from its beginning, half from its end."""


@contextmanager
def user_code(what: str, file: Path) -> Iterator[None]:
    """Run code of a user: its prints go to stderr, its errors become one of ours."""
    try:
        with _stdout_kept():
            yield
    except (MaxtoolError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        raise _failed(what, file, error) from error


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Send to stderr what is printed, also by child processes and by what knows descriptors alone.

    Streams are flushed first and last, so that nothing ends on the side where it was not written.
    """
    with ExitStack() as stack:
        _flush()
        with suppress(OSError):  # one of them was closed before the program began
            stack.enter_context(_descriptor_replaced(1, by=2))
        stack.enter_context(redirect_stdout(sys.stderr))
        stack.callback(_flush)
        yield


def _flush() -> None:
    for stream in filter(None, (sys.stdout, sys.__stdout__)):
        with suppress(OSError, ValueError):  # the code of a user may have closed it
            stream.flush()


@contextmanager
def _descriptor_replaced(descriptor: int, *, by: int) -> Iterator[None]:
    kept = os.dup(descriptor)
    try:
        os.dup2(by, descriptor)
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


@contextmanager
def imports_beside(file: Path) -> Iterator[None]:
    """Let imports find the modules in the folder of ``file``; none is compiled to disk.

    The path is the process's own again afterwards, whatever the code in the block did to it.
    """
    path, bytecode = sys.path, sys.dont_write_bytecode
    sys.path = [str(file.resolve().parent), *path]
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path, sys.dont_write_bytecode = path, bytecode


def _failed(what: str, file: Path, error: BaseException) -> ModelMismatch:
    said = _said(error)
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, SyntaxError) and isinstance(error.lineno, int):
        lines = [f"line {error.lineno}: {_cut(str(error.text or '').strip())}"]
        return ModelMismatch(f"{what} raises {text}", file=str(error.filename), problems=lines)
    return ModelMismatch(f"{what} raises {text}", file=file, problems=_lines(error))


def _said(error: BaseException) -> str:
    """The text of an exception, whose ``__str__`` may raise another one."""
    try:
        return _cut(str(error.msg if isinstance(error, SyntaxError) else error).strip())
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as second:
        return f"its text cannot be had, as __str__ raises {type(second).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _lines(error: BaseException) -> list[str]:
    """The lines of a traceback that are neither this package's nor Python's, outermost first."""
    lines = [
        f"{Path(at.filename).name}, line {at.lineno}, in {at.name}: {_cut(at.line or '')}"
        for at in traceback.extract_tb(error.__traceback__)
        if _is_users(Path(at.filename))
    ]
    half = MAX_LINES // 2
    skipped = len(lines) - 2 * half
    if skipped <= 1:
        return lines
    return [*lines[:half], f"({skipped} lines are left out)", *lines[-half:]]


def _is_users(path: Path) -> bool:
    return path.is_file() and not path.resolve().is_relative_to(HERE)
