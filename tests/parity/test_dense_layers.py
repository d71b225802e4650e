"""Layers behind the pooling beside what torch makes of them behind transformers' models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.conversion import Request, convert, prepare
from maxtool.errors import ConfigurationError
from maxtool.runtime import loader
from maxtool.weights import open_checkpoint
from tests.artifact.measure import Array, error
from tests.data.dense_folders import CASES, IN_GGUF, RECORDED, given, write
from tests.parity.traced import TracedModel

KNOWN: dict[str, Any] = json.loads(RECORDED.read_text())
BOUND = 2e-6
"""The error that docs/models.md tells."""
COMPILED = ("two layers, as GGUF has them", "every activation")


def traced(path: Path) -> Array:
    return TracedModel(open_checkpoint(path)).run("embed", given())["embeddings"]


def expected(name: str) -> Array:
    return np.array(KNOWN[name]["vectors"])


@pytest.mark.parametrize("name", CASES)
def test_vectors(name: str, tmp_path: Path) -> None:
    assert error(traced(write(tmp_path / "model", name)), expected(name)) <= BOUND


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str, tmp_path: Path) -> None:
    source, output = write(tmp_path / "model", name), tmp_path / "out"
    artifact.make(artifact.prepare(artifact.Request(source, output, check=True)))
    actual = loader.load(output).run("embed", given())["embeddings"]
    assert error(actual, expected(name)) <= BOUND


@pytest.mark.peers
@pytest.mark.parametrize("name", CASES)
def test_check_with_transformers(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source, output = write(tmp_path / "model", name), tmp_path / "out"
    request = artifact.Request(source, output, check=True, against="transformers")
    report = artifact.make(artifact.prepare(request))
    assert report.check is not None


@pytest.mark.parametrize("name", IN_GGUF)
def test_from_gguf_and_back(name: str, tmp_path: Path) -> None:
    source, file, back = write(tmp_path / "model", name), tmp_path / "x.gguf", tmp_path / "back"
    for origin, target in ((source, file), (file, back)):
        convert(prepare(Request(origin, target)))
    for path in (file, back):
        scaled = traced(path) / np.linalg.norm(traced(path), axis=1, keepdims=True)
        assert error(scaled, expected(name)) <= BOUND


@pytest.mark.parametrize("name", [name for name in CASES if name not in IN_GGUF])
def test_what_gguf_has_no_place_for(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "model", name)
    with pytest.raises(ConfigurationError, match=r"dense_.* has no spelling in gguf"):
        prepare(Request(source, tmp_path / "x.gguf"))
