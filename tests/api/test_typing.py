"""The package as a type checker sees it from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import maxtool

SAMPLE = Path(__file__).with_name("typed_user.py")


@pytest.mark.slow
def test_a_users_file_passes_strictly(tmp_path: Path) -> None:
    """Type-check from another folder, as a user of the installed package would."""
    (tmp_path / "user.py").write_text(SAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(maxtool.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
