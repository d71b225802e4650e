"""The sample of a module: it reads digits, and computes what was trained."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import TensorType
from maxtool.nn.tracing import trace
from maxtool.parity import evaluate
from maxtool.weights import open_checkpoint

DIGITS = Path(__file__).resolve().parents[1] / "samples" / "digits"


def test_the_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DIGITS))
    import digits as module  # type: ignore[import-not-found]
    import pictures  # type: ignore[import-not-found]
    import train  # type: ignore[import-not-found]

    checkpoint = open_checkpoint(DIGITS / "digits.safetensors")
    weights = {name: checkpoint.read(name).data for name in checkpoint.tensors}
    random = np.random.default_rng(5)
    labels = random.integers(0, 10, 500)
    drawn = pictures.draw(labels, random)
    _, shares = train.forward(weights, drawn.reshape(500, -1))
    assert (shares.argmax(1) == labels).mean() > 0.95
    network, kind = module.Digits(), TensorType(DType.float32, ["n", 8, 8])
    graph = trace(network, "digits", [kind], lambda x: list(network(x).values()))
    digit, share = evaluate(graph, [drawn], weights)
    np.testing.assert_array_equal(digit, shares.argmax(1))
    np.testing.assert_allclose(share, shares, atol=1e-5)
    for name in ("digits", "pictures", "train"):
        del sys.modules[name]
