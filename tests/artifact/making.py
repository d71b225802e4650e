"""Artifacts and commands that tests ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app


def made(source: Path, output: Path | None = None, **options: Any) -> Path:
    """The artifact of a checkpoint, beside it if nothing else is said."""
    output = output or source.with_name("compiled")
    artifact.make(artifact.prepare(artifact.Request(source, output, **options)))
    return output


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command; what it writes, and what it says."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.stderr
    return result.stdout, result.stderr
