"""What --check says before anything is compiled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from maxtool import artifact
from maxtool.errors import ConfigurationError


def test_a_model_without_a_reference_is_refused_before_it_is_compiled(
    data: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(data / "tiny-llama", source)
    config = json.loads((source / "config.json").read_text())
    config |= {"model_type": "mine", "architectures": ["MineForCausalLM"]}
    (source / "config.json").write_text(json.dumps(config))
    request = artifact.Request(source, tmp_path / "out", recipe="llama", check=True)
    with pytest.raises(
        ConfigurationError, match="--check knows no reference for model_type 'mine'"
    ):
        artifact.prepare(request)
    assert not (tmp_path / "out").exists()
