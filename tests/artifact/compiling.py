"""Models compiled, and checkpoints converted, as users do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.runtime import loader


def compiled(source: Path, output: Path, **options: Any) -> loader.Model:
    """A model that was compiled, checked and loaded."""
    artifact.make(artifact.prepare(artifact.Request(source, output, check=True, **options)))
    return loader.load(output)


def convert(source: Path, output: Path) -> str:
    """Convert a checkpoint; returns what is said on stderr."""
    result = CliRunner().invoke(app, ["convert", str(source), "-o", str(output)])
    assert result.exit_code == 0, result.stderr
    return result.stderr
