"""Artifacts of earlier commits: they load while the number of the schema stays the same.

``tests/data/older`` has manifests of schema 3 as they were first written, before artifacts told
what they were built from or held several texts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from maxtool.runtime.loader.manifest import CHECKSUM, Manifest, checksum

OLDER = sorted((Path(__file__).parents[1] / "data" / "older").glob("*.json"))


@pytest.fixture(params=OLDER, ids=lambda path: path.stem)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an artifact whose files have their sizes, and zeros for bytes."""
    shutil.copy(request.param, tmp_path / "manifest.json")
    files = json.loads(request.param.read_bytes())["files"]
    for name, told in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(told["bytes"])
    return tmp_path


def test_an_older_manifest_is_read(older: Path) -> None:
    manifest = Manifest(older)
    assert manifest.root[CHECKSUM] == checksum(manifest.root)
    assert manifest.batch == manifest.devices == 1
    assert "build" not in manifest.root
    entries = {"generate": {"forward", "prefill", "decode"}, "embed": {"forward", "embed"}}
    assert manifest.task is not None
    assert manifest.entries.keys() == entries[manifest.task]
    assert bool(manifest.state) == (manifest.task == "generate")
