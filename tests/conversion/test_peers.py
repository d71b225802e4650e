"""Outputs of transformers for a folder that has been through GGUF."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxtool.conversion import Request, convert, prepare
from tests.artifact.measure import BOUND, error, recorded

pytestmark = pytest.mark.peers
DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-llama-tied", "tiny-mistral"])
def test_transformers_computes_the_same(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    convert(prepare(Request(DATA / name, tmp_path / "a.gguf")))
    convert(prepare(Request(tmp_path / "a.gguf", tmp_path / "back")))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", dtype=torch.float32
    )
    expected = recorded(DATA / name)
    with torch.no_grad():
        logits = model(torch.tensor(expected["input_ids"])).logits.numpy()
    assert error(logits, expected["logits"]) <= BOUND
