"""Classes of transformers that compute the original of a model which writes texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.artifact.original_model import writer_of
from maxtool.weights import open_checkpoint

pytestmark = pytest.mark.peers


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama", "AutoModelForCausalLM"),
        ("llava", "AutoModelForImageTextToText"),
        ("voxtral", "AutoModelForMultimodalLM"),
    ],
)
def test_models_that_see_or_hear_have_others(kind: str, name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.AutoConfig.for_model(kind).save_pretrained(tmp_path)
    save_file({"none": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    assert writer_of(open_checkpoint(tmp_path)) == name
