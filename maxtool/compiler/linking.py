"""Linking of compiled code into a shared library, with whatever linker the machine has."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.tool_runner import run_tool
from maxtool.errors import MachineLacks
from maxtool.files import staged

COMPILERS = ("cc", "c++", "gcc", "clang")

# What TVM takes for a library, by its suffix.
LIBRARY = "module.so"

# A folder for object files: where TVM cannot make one of its own, it prints a traceback.
OBJECTS = "objects"

# Equal code gives equal bytes: no identity that a linker may make up, and no path of this machine.
NO_BUILD_ID = "--build-id=none"

# How programs are asked for it, and how long they may take to say it.
VERSION, SECONDS = "--version", 30

# What each system calls "make a shared library whose missing symbols the loader provides".
SHARED = {
    "Linux": ("-shared", "-fPIC", f"-Wl,{NO_BUILD_ID}"),
    "Darwin": ("-dynamiclib", "-undefined", "dynamic_lookup", "-install_name", LIBRARY),
}

# The linker of last resort is a package of Python's.
ZIG = ", or `pip install ziglang`"

# Spellings of one instruction set in triples and in platform.machine().
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def export_library(executable: Any, path: Path, target: CpuTarget) -> None:  # noqa: ANN401
    """Write a compiled module as a shared library that appears whole or not at all."""
    command = find_linker(target)

    def link(output: str, objects: Sequence[str], **_options: object) -> None:
        run_tool(f"the linker {command[0]}", [*command, "-o", output, *objects])

    with staged(path) as staging:
        library, objects = staging.with_name(LIBRARY), staging.with_name(OBJECTS)
        objects.mkdir()
        executable.export_library(str(library), fcompile=link, workspace_dir=str(objects))
        library.replace(staging)


def find_linker(target: CpuTarget) -> list[str]:
    """The start of the command that links objects for a target: ``[*command, "-o", out, ...]``."""
    program, flags = _linking(target)
    return [*program, *flags]


def linker_identity(target: CpuTarget) -> dict[str, object]:
    """The name of the program that links for a target, and what it and its linker call themselves.

    A C compiler says which linker it runs, and what is linked beside the objects.
    """
    program, flags = _linking(target)
    through = [f"-Wl,{VERSION}"] if "-fPIC" in flags else []
    said = (_said([*program, option]) for option in (VERSION, *through))
    return {"name": Path(program[-1]).name, "versions": [line for line in said if line]}


def _said(command: Sequence[str]) -> str:
    """The first line that a program writes; nothing where it does not know what it was asked."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)  # noqa: S603 - a program that was found
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").partition("\n")[0]


def _linking(target: CpuTarget) -> tuple[list[str], Sequence[str]]:
    """A program that links for a target, and the flags that it needs.

    In this order: the system's C compiler when the target is this kind of machine, a cross compiler
    or a linker named after the triple, ``ld.lld``, the one in the ``ziglang`` package.
    """
    system = _system(target)
    if compiler := _compiler(target):
        return [compiler], SHARED[system]
    if system == "Darwin":
        raise MachineLacks(
            f"no linker for {target.triple}", hint="libraries for macOS are linked on macOS"
        )
    if linker := _linker(target):
        return linker, ("-shared", NO_BUILD_ID)
    raise MachineLacks(f"no linker for {target.triple}", hint=f"{_to_install(target)}{ZIG}")


def _to_install(target: CpuTarget) -> str:
    """Advice on installing a linker for a target, by the package names of most systems."""
    if is_native(target):
        return "install a C compiler, such as gcc"
    return (
        f"the C compiler here links for {platform.machine()} only: "
        f"install binutils-{target.triple.replace('_', '-')} or lld"
    )


def _compiler(target: CpuTarget) -> str | None:
    """A C compiler for the target: the system's own, or one whose name begins with the triple."""
    names: tuple[str, ...] = (f"{target.triple}-gcc",)
    if is_native(target):
        names = (*COMPILERS, *names)
    return next((path for name in names if (path := shutil.which(name))), None)


def is_native(target: CpuTarget) -> bool:
    """Return whether libraries of this machine, whatever its CPU, are of the target's kind."""
    same_machine = _machine(target.triple) == _machine(platform.machine())
    return platform.system() == _system(target) and same_machine


def _system(target: CpuTarget) -> str:
    return "Darwin" if "apple" in target.triple else "Linux"


def _machine(name: str) -> str:
    machine = name.partition("-")[0].lower()
    return MACHINES.get(machine, machine)


def _linker(target: CpuTarget) -> list[str] | None:
    """GNU's linker for the target, or LLVM's, which takes objects of every ELF machine."""
    names = (f"{target.triple}-ld", "ld.lld")
    if path := next((path for name in names if (path := shutil.which(name))), None):
        return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "ld.lld"]
    return None
