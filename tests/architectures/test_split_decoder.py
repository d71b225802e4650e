"""A decoder whose weights are split over devices computes what the whole one does."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.architectures import Decoder, build
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, ShardingStrategy, TensorType
from maxtool.nn.tracing import trace
from tests.architectures.decoders import CONFIG

DEVICES = [DeviceRef.CPU(0), DeviceRef.CPU(1)]
IDS = TensorType(DType.int64, ["batch", "seq"])


def loaded() -> Decoder:
    model: Decoder = build("decoder", CONFIG | {"tie_word_embeddings": True, "qkv_bias": True})
    rng = np.random.default_rng(0)
    shapes = {name: weight.shape.static() for name, weight in model.raw_state_dict().items()}
    model.load_state_dict(
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    )
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rowwise", "columnwise"])
def test_a_split_decoder_is_the_whole_one(kind: str) -> None:
    ids = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    whole = loaded().compile(IDS)(ids).to_numpy()
    model = loaded()
    model.to(*DEVICES, sharding_strategy=getattr(ShardingStrategy, kind)(2))
    graph = trace(model, "forward", [IDS])
    assert len(graph.subgraphs) == 1
    there = [name for name, value in graph.weight_values.items() if value.device == DEVICES[1]]
    assert {"layers.2.attn.q.weight[1]", "layers.0.mlp.down.weight[1]"} <= set(there)
    split = model.compile(IDS)(ids).to_numpy()
    np.testing.assert_allclose(split, whole, rtol=1e-4, atol=1e-5 * np.abs(whole).max())
