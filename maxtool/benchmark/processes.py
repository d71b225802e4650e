"""Processes that measure, and how they are asked: see ``serving``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from maxtool.errors import MachineLacks, MaxtoolError, translated
from maxtool.runtime.loader.errors import FIELDS, RunError

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A process that obeys orders.

    Attributes:
        rested: Seconds of the last answer in which the process waited for its threads to sleep.
    """

    def __init__(self, child: subprocess.Popen[str], errors: IO[bytes]) -> None:
        self._child, self._errors = child, errors
        self.rested = 0.0

    def ask(self, order: str, **arguments: object) -> dict[str, Any]:
        """Give an order, and wait for what the process answers; raise the error that it tells."""
        asked, answers = (cast("IO[str]", pipe) for pipe in (self._child.stdin, self._child.stdout))
        try:
            asked.write(json.dumps({"order": order, **arguments}) + "\n")
            asked.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise self._ended(order)
        answer: dict[str, Any] = json.loads(line)
        self.rested = answer.pop("rested")
        if "error" in answer:
            raise _error(answer["error"])
        return answer

    def _ended(self, order: str) -> MaxtoolError:
        """The error for a process that ended without an answer."""
        code = self._child.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        what = f"the process that measures ended while it did {order!r}, with {code}"
        return MachineLacks(what, hint=said[-1] if said else None)


@contextmanager
def started(module: str, *arguments: str, threads: int | None = None) -> Iterator[Process]:
    """Run a module in a process of its own, which ends with the block.

    Args:
        module: Its name.
        arguments: Of its command line.
        threads: How many threads it may use; None for its own choice.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    pipe, variables = subprocess.PIPE, environment(threads)
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(  # noqa: S603 - our own program, without a shell
                command, stdin=pipe, stdout=pipe, stderr=errors, encoding="utf-8", env=variables
            )
        except OSError as error:
            raise MachineLacks(f"cannot start {sys.executable!r}: {error.strerror}") from None
        try:
            yield Process(child, errors)
        finally:
            child.kill()
            child.communicate()


def environment(threads: int | None) -> dict[str, str]:
    """The variables of a process that measures: the same package, and so many threads."""
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    result = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return result if threads is None else {**result, "TVM_NUM_THREADS": str(threads)}


def _error(content: dict[str, Any]) -> MaxtoolError:
    """An error as the process told it."""
    told = RunError(**{field: content[field] for field in FIELDS if field != "exit_code"})
    told.kind = content["class"]
    return translated(told)
