"""Artifacts compiled once for all tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from maxtool import artifact
from tests.artifact.measure import Compile

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """``compiled(source, **options)``: the artifact's folder, compiled when first asked for."""

    @cache
    def make(source: Path, **options: object) -> Path:
        output = tmp_path_factory.mktemp("artifact") / "model"
        request = artifact.Request(source, output, **options)  # type: ignore[arg-type]
        artifact.make(artifact.prepare(request))
        return output

    return make


@pytest.fixture(scope="session")
def data() -> Path:
    """The tiny checkpoints."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def sample() -> Path:
    """The sample model."""
    return ROOT / "samples" / "fireside"
