"""Fixtures that every room's tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference checkpoints beside the checkout."""
    if not REFERENCE.is_dir():
        pytest.skip(f"the reference checkpoints are missing: no folder {REFERENCE}")
    return REFERENCE
