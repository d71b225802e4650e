"""Graphs of models of speech in float64 beside what transformers recorded, in all their options.

``tests/data/record_whisper.py`` recorded it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.errors import ModelMismatch
from maxtool.weights.checkpoint import open_checkpoint
from tests.artifact.measure import error
from tests.data.seeded import tensors
from tests.parity.speech import SpeechModel

RECORDED = dict(np.load(Path(__file__).resolve().parents[1] / "data" / "whisper.npz"))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())


def written(case: str, folder: Path, **changes: Any) -> Path:
    """The checkpoint of a case, with changes to its configuration."""
    known = CASES[case]
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(known["config"] | changes))
    save_file(tensors(known["shapes"], 1.0), folder / "model.safetensors")
    return folder


# An activation each, whose formulas other models' recordings have, too.
SLOW = [f"whisper-{number}" for number in range(1, 10)]
QUICK = [case for case in CASES if case not in SLOW]


@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_recorded_outputs(case: str, tmp_path: Path) -> None:
    model = SpeechModel(open_checkpoint(written(case, tmp_path)))
    for name, found in model.outputs(CASES[case]["config"]).items():
        expected = RECORDED[f"{case}/{name}"]
        assert found.shape == expected.shape
        assert error(found, expected) < 2e-6, name


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"encoder_attention_heads": 3}, "is not a multiple of encoder_heads 3"),
        ({"decoder_attention_heads": 3}, "is not a multiple of n_heads 3"),
        (
            {"activation_function": "prelu"},
            "activation_function: 'prelu' is not one of gelu, gelu_10",
        ),
        ({"max_source_positions": 10}, "embed_positions"),
        ({"encoder_layers": 10**6, "num_hidden_layers": 10**6}, "above 10000"),
        ({"decoder_layers": 10**6}, "has 1000000 layers"),
        ({"num_hidden_layers": 7}, "num_hidden_layers"),
        ({"rope_theta": 10000.0}, "rope_theta = 10000.0 is unknown"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ModelMismatch) as refusal:
        SpeechModel(open_checkpoint(written("whisper-0", tmp_path, **changes)))
    assert problem in str(refusal.value)
