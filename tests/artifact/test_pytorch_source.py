"""A Hugging Face folder with PyTorch's weights compiles to the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxtool.dtype import DType
from tests.artifact.measure import Compile, bound, error, logits, recorded
from tests.conversion.test_pytorch_source import as_pytorch


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny-llama-tied"])
def test_logits(compiled: Compile, data: Path, tmp_path: Path, name: str) -> None:
    expected = recorded(data / name)
    artifact = compiled(as_pytorch(data / name, tmp_path / name), kv_dtype=DType.float32)
    assert error(logits(artifact, expected["input_ids"]), expected["logits"]) <= bound(data / name)
