"""Classes of transformers that compute the original of a model which writes texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool import artifact
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


TEXT = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
}
SEEN = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
SEEN |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}


@pytest.mark.filterwarnings("ignore")
def test_logits_are_scaled_where_the_class_of_the_whole_does_not(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    text = {"model_type": "cohere2", "logit_scale": 0.25, **TEXT}
    vision = {"model_type": "siglip_vision_model", **SEEN}
    config = transformers.AutoConfig.for_model(
        "cohere2_vision", text_config=text, vision_config=vision
    )
    source, output = tmp_path / "source", tmp_path / "output"
    transformers.AutoModelForImageTextToText.from_config(config).save_pretrained(source)
    request = artifact.Request(source, output, check=True, against="transformers")
    artifact.make(artifact.prepare(request))
    assert json.loads((output / "manifest.json").read_text())["check"]["status"] == "passed"
