"""The compiled module is built once for all tests of the loader."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import PROMPT, STORY


@pytest.fixture(scope="session")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_artifact.compile_module(tmp_path_factory.mktemp("module"))


@pytest.fixture
def ids() -> dict[str, list[int]]:
    """Token ids of the prompt and of what the model continues it with."""
    prompt, whole = tiny_artifact.encode(PROMPT), tiny_artifact.encode(PROMPT + STORY)
    assert whole[: len(prompt)] == prompt
    return {"prompt": prompt, "story": whole[len(prompt) :]}


@pytest.fixture
def artifact(tmp_path: Path, module: Path, ids: dict[str, list[int]]) -> Path:
    make_artifact(tmp_path / "artifact", module, ids)
    return tmp_path / "artifact"


def make_artifact(folder: Path, module: Path, ids: dict[str, list[int]]) -> dict[str, Any]:
    tokens = [*ids["story"][: tiny_artifact.CONTEXT], tiny_artifact.EOS]
    return tiny_artifact.make(folder, module, tokens, len(ids["prompt"]))
