"""Ends the writing of an output at each line of the code that does it, one after the other.

Run as ``python -m tests.files.faults FOLDER FORM STATE WAY KIND``, with a FORM of file, folder or
parts, or with a journal kept-folder or kept-parts, a STATE of there or free, a WAY of exchange or
renames, and a KIND of kill or interrupt. Prints how many lines there were, what was wrong, and how
many parts were kept, as one JSON object.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import maxtool.files
from maxtool.files import (
    Journal,
    check_output,
    forget_written,
    kept_parts,
    renames,
    sha256,
    staged,
    staged_parts,
    written,
)

CODE = str(Path(maxtool.files.__file__).parent)
NAME = "out"
FOUND: set[int] = set()  # how many parts of an output were kept


class Fault:
    """Ends the process, or interrupts it once, at the line whose number it is given."""

    def __init__(self, line: int, kind: str) -> None:
        self.left = line
        self.kind = kind

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0 and self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.left == 0:
                raise KeyboardInterrupt
        return self


PARTS = ["out", "out.1", "out.2"]  # the first is what readers begin with


def write(out: Path, text: str, form: str) -> int:
    """An output of a file, of a folder with three, or of three beside each other.

    Returns how many of these an earlier run had finished.
    """
    check_output(out, force=True)
    journal = Journal({"text": text}) if form.startswith("kept-") else None
    if form.endswith("parts"):
        old = re.compile(r"out(\.[123])?")
        with staged_parts(out, parts=PARTS, old=old, journal=journal) as staging:
            return fill([staging / part for part in PARTS], text, journal)
    whole = form.endswith("folder")
    with staged(out, folder=whole, journal=journal) as staging:
        return fill([staging / name for name in "abc"] if whole else [staging], text, journal)


def fill(files: list[Path], text: str, journal: Journal | None) -> int:
    """Write files that a journal does not list; returns how many it does."""
    kept = 0
    for file in files:
        part = journal.part(file) if journal else None
        if part is not None and part.is_at(file):
            kept += 1
            continue
        file.write_text(text)
        if journal is not None:
            journal.add(file, sha256(file), {})
    return kept


def read(out: Path, form: str) -> str | None:
    """The text of a whole output; None if there is none, ``broken`` if it is not whole."""
    if not out.exists():
        return None
    files = {"file": lambda: [out] * 3, "folder": lambda: out.iterdir()}
    kind = form.rpartition("-")[2]
    texts = [file.read_text() for file in files.get(kind, lambda: out.parent.glob("out*"))()]
    return texts[0] if len(texts) == 3 and len(set(texts)) == 1 else "broken"


def attempt(out: Path, line: int, kind: str, form: str) -> int:
    """Return the exit code of a process that is ended at a line; 0 if it has fewer lines."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    fault = Fault(line, kind)
    code = 1
    forget_written()
    try:
        sys.settrace(fault)
        write(out, "new", form)
    except KeyboardInterrupt as error:
        sys.settrace(None)
        at = [frame.line for frame in traceback.extract_tb(error.__traceback__)]
        told = bool(written()) == (read(out, form) == "new")
        cleared = "held.end()" in at or not hidden(out.parent) or bool(kept_parts(out))
        code = 130 if told and cleared else 131
    else:
        code = 0 if fault.left > 0 else 130
    finally:
        sys.settrace(None)
        os._exit(code)


def hidden(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name not in PARTS]  # noqa: PTH208


def problems(
    out: Path, form: str, before: str | None, code: int, kind: str, *, atomic: bool
) -> list[str]:
    """Return the problems after a process was ended, and after the next run began."""
    result = [] if code in (-signal.SIGKILL, 130) else [f"ended with {code}"]
    if atomic and read(out, form) not in (before, "new"):
        result.append(f"the output is {read(out, form)}")
    if form.endswith("parts") and read(out, form) not in (before, "new", None):
        result.append("there is an output, and it is a mixture")
    check_output(out, force=True)  # as the next run begins
    if read(out, form) not in (before, "new"):
        result.append(f"the output is {read(out, form)} in the next run")
    if form.startswith("kept-"):
        result += problems_of_going_on(out, form)
    return result + [f"{name} is left after {kind}" for name in hidden(out.parent)]


def problems_of_going_on(out: Path, form: str) -> list[str]:
    """Return the problems of the next run, which goes on with what is finished."""
    expected, seen = len(kept_parts(out)), bool(hidden(out.parent))
    kept = write(out, "new", form)
    if kept != expected or seen != bool(expected) or read(out, form) != "new":
        return [f"{kept} of {expected} parts were kept, and the output is {read(out, form)}"]
    FOUND.add(kept)
    return []


def main(root: Path, form: str, state: str, way: str, kind: str) -> dict[str, object]:
    """Try every line."""
    out, line = root / NAME, 0
    if way == "renames":
        renames._renameat2 = lambda: None  # type: ignore[assignment]
    atomic = form == "file" or (form.endswith("folder") and way == "exchange")
    wrong: list[str] = []
    while True:
        line += 1
        before = "old" if state == "there" else None
        if before:
            write(out, before, form)
        code = attempt(out, line, kind, form)
        if code == 0:
            wrong += [f"{name} is left" for name in hidden(root)]
            return {"lines": line, "wrong": wrong, "kept": sorted(FOUND)}
        wrong += [
            f"{line}: {text}" for text in problems(out, form, before, code, kind, atomic=atomic)
        ]
        for part in () if before else root.glob("out*"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), *sys.argv[2:])))
