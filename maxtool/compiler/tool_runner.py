"""The programs that compiling runs: linkers, and NVIDIA's assembler."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from maxtool.errors import CompilationFailed

SECONDS = 600  # far beyond what any takes; one that hangs must not hang the tool
SHOWN = 10


def run_tool(what: str, command: Sequence[str]) -> str:
    """Run a program to its end, which messages call ``what``; return what it wrote to stderr.

    An error has the last of what it said in its ``problems``.
    """
    try:
        done = subprocess.run(  # noqa: S603 - a program that was found, and files of our own
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilationFailed(f"{what} did not run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.splitlines() or done.stdout.splitlines()
        status = f"{what} failed (exit status {done.returncode})"
        raise CompilationFailed(status, problems=said[-SHOWN:])
    return done.stderr
