"""Commands that tests of conversions ask for."""

from __future__ import annotations

from typer.testing import CliRunner

from maxtool.cli.app import app


def run(*arguments: object, code: int = 0) -> str:
    """Run a command; what it says."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.stderr
    return result.stderr
