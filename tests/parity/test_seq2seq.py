"""Graphs of models of two texts in float64 beside what transformers recorded, in all their options.

``tests/data/record_seq2seq.py`` recorded it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxtool.architectures.relative_positions import buckets_of
from maxtool.weights.checkpoint import open_checkpoint
from tests.artifact.measure import error
from tests.data.seeded import tensors
from tests.effort import sampled
from tests.parity.seq2seq import Seq2SeqModel

RECORDED = dict(np.load(Path(__file__).resolve().parents[1] / "data" / "seq2seq.npz"))
CASES: dict[str, Any] = json.loads(RECORDED.pop("cases").tobytes())
# T5 does not scale scores: in the sharp softmax of a few of 142 cases the rounding of what was
# recorded, in float32, is more than 1e-5.
BOUND = 4e-5


def written(case: str, folder: Path, **changes: Any) -> Path:
    """The checkpoint of a case, with changes to its configuration."""
    known = CASES[case]
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(known["config"] | changes))
    save_file(tensors(known["shapes"], 1.0), folder / "model.safetensors")
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize(
    "case", sampled(CASES, *(case for case in CASES if case.endswith(("-0", "-older-0", "-bare"))))
)
def test_recorded_outputs(case: str, tmp_path: Path) -> None:
    model = Seq2SeqModel(open_checkpoint(written(case, tmp_path)))
    for name, found in model.outputs(CASES[case]["config"]).items():
        expected = RECORDED[f"{case}/{name}"]
        assert found.shape == expected.shape
        assert error(found, expected) < BOUND, name


@pytest.mark.parametrize("causal", [False, True])
def test_buckets(causal: bool) -> None:
    far = np.arange(-200, 201)
    found = buckets_of(far, 32, 128, causal=causal)
    half = 32 if causal else 16
    near = half // 2
    assert found[far == 0] == [0]
    assert found[(-near < far) & (far <= 0)].tolist() == [*range(near - 1, -1, -1)]
    assert set(found[far <= -128]) == {half - 1}
    assert set(found[far >= 128]) == ({0} if causal else {31})
    assert (np.diff(found[far <= 0]) <= 0).all()


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_those_of_transformers(causal: bool) -> None:
    torch = pytest.importorskip("torch", reason="needs the peers extra")
    from transformers.models.t5.modeling_t5 import T5Attention

    far = np.arange(-3000, 3001)
    for count in (4, 6, 8, 9, 15, 32, 64, 100):
        for farthest in (count // 2 + 1, 40, 128, 1000, 2**11):
            if farthest <= count // 2:
                continue
            expected = T5Attention._relative_position_bucket(
                torch.from_numpy(far), not causal, count, farthest
            )
            found = buckets_of(far, count, farthest, causal=causal)
            assert np.array_equal(found, expected.numpy()), (count, farthest)
