"""Records of steps: what each was made from when it was last run, and what it wrote."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from maxtool import __version__
from maxtool.build.step import Step
from maxtool.files import staged
from maxtool.files.content import MISSING, Contents
from maxtool.urls import identity, is_url, redacted

SCHEMA = "maxtool.build-step/1"
# What each field of a record is in JSON.
FORMS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("argv", "listed"), (list,)),
    **dict.fromkeys(("made_with", "inputs", "outputs"), (dict,)),
    **dict.fromkeys(("nbytes", "peak_bytes"), (int,)),
    "output": (str, type(None)),
    "seconds": (int, float),
}
# Options that take the name of a source; what is no option is one.
NAMING = ("--weights=", "--base=", "--merge-lora=", "--imatrix=")
PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy")
CPU_INFO = Path("/proc/cpuinfo")
# Targets that mean the machine that compiles.
OWN_MACHINE = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a step.

    Attributes:
        argv: The command line, without what gives access to URLs in it.
        output: Where it wrote.
        made_with: Versions of what ran it; of a step that depends on this machine, the machine too.
        inputs: SHA-256 of every file that was read, by path.
        listed: The names in the folder that was the source.
        outputs: SHA-256 of every file that was written, by path.
        nbytes: Their size.
        seconds: The time that it took.
        peak_bytes: The memory that it took.
    """

    argv: Sequence[str]
    output: str | None
    made_with: Mapping[str, str]
    inputs: Mapping[str, str]
    listed: Sequence[str] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    nbytes: int = 0
    seconds: float = 0.0
    peak_bytes: int = 0

    def stale(self, step: Step, contents: Contents) -> str | None:
        """Return why the step has to run again; None if it is up to date."""
        if (tuple(self.argv), self.output) != (recorded_words(step.argv), step.output):
            return "its options are others"
        for name, used in made_with(step).items():
            if self.made_with.get(name) != used:
                return f"another {name}"
        if list(self.listed) != contents.names(step.source):
            return f"other files in {step.source}"
        for kind, recorded in (("input", self.inputs), ("output", self.outputs)):
            for path, digest in recorded.items():
                found = contents.digest(path)
                if found != digest:
                    return f"{kind} {path} {'is missing' if found == MISSING else 'changed'}"
        if step.output and (self.outputs.keys() ^ written(step, self.outputs, contents)):
            return f"other files in {step.output}"
        return None


def recorded_words(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line as it is recorded: of URLs that name sources, what they name and no more."""
    return tuple(_shown(word, identity) for word in argv)


def printed_words(argv: Sequence[str]) -> list[str]:
    """A command line as it is printed: URLs without user, password and query."""
    return [_shown(word, redacted) for word in argv]


def _shown(word: str, as_text: Callable[[str], str]) -> str:
    option, equals, value = word.partition("=") if word.startswith(NAMING) else ("", "", word)
    return f"{option}{equals}{as_text(value)}" if is_url(value) else word


def written(step: Step, outputs: Mapping[str, str], contents: Contents) -> set[str]:
    """The files of an output: those in its folder, or where it is none, those it said."""
    is_folder = step.output is not None and (contents.folder / step.output).is_dir()
    return {*contents.below(str(Path(str(step.output))))} if is_folder else {*outputs}


def made_with(step: Step) -> dict[str, str]:
    """Versions of what runs a step; where its target is whatever machine this is, that machine."""
    used = dict(_versions())
    targets = [word.partition("=")[2] for word in step.argv if word.startswith("--target=")]
    is_for_this = step.kind == "compile" and (targets or ["cpu"])[-1] in OWN_MACHINE
    if is_for_this or step.kind == "bench":
        used["machine"] = _machine()
    return used


@cache
def _versions() -> Mapping[str, str]:
    found = {"maxtool": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # it may be imported from a folder
            found[package] = "unknown"
    return found


@cache
def _machine() -> str:
    """A hash of what the system tells of this machine's processors."""
    try:
        lines = CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    told = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    known = [platform.machine(), os.environ.get("MAXTOOL_HOST_CPU", ""), *told]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()


class Records:
    """The records of the steps of a build file, a file for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Record | None:
        """The record of a step; None if there is none, or none that was written whole."""
        try:
            content = json.loads((self._folder / f"{name}.json").read_bytes())
            is_one = content.pop("schema") == SCHEMA and {*content} == {*FORMS}
            fits = is_one and all(type(value) in FORMS[key] for key, value in content.items())
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return Record(**content) if fits else None

    def write(self, name: str, record: Record) -> None:
        """Replace the record of a step, at one moment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with staged(self._folder / f"{name}.json") as path:
            path.write_text(json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1))
