"""Attention, rotations and normalizations of com.microsoft, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.importers.beside_onnxruntime import require_equal
from tests.importers.models import model, value

pytestmark = pytest.mark.peers
dtype_of = helper.np_dtype_to_tensor_dtype
MICROSOFT = "com.microsoft"
CODES = {"count": TensorProto.INT32}
B, S, P, N, D, E = 2, 5, 3, 4, 16, 64


def draw(*shape: int) -> np.ndarray:
    seed = sum(size * 31**at for at, size in enumerate(shape))
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(
    op: str,
    inputs: Sequence[np.ndarray | None],
    outputs: Sequence[str],
    folder: Path,
    domain: str = MICROSOFT,
    shapes: Mapping[int, Sequence[Any]] | None = None,
    rtol: float = 1e-4,
    **attributes: Any,
) -> None:
    """Run one node; inputs that are None are left out."""
    names = [f"x{at}" if one is not None else "" for at, one in enumerate(inputs)]
    given = {name: one for name, one in zip(names, inputs, strict=True) if one is not None}
    while names and not names[-1]:
        names.pop()
    chosen = shapes or {}
    infos = [
        value(
            name, chosen.get(int(name[1:]), one.shape), helper.np_dtype_to_tensor_dtype(one.dtype)
        )
        for name, one in given.items()
    ]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    proto = model([node], infos, [name for name in outputs if name], domains={MICROSOFT: 1})
    for info in proto.graph.output:
        info.type.tensor_type.elem_type = CODES.get(info.name, TensorProto.FLOAT)
    require_equal(proto, given, folder, rtol=rtol, atol=2e-5)


TOKENS = draw(B, S, E)
MASKS = {
    "none": None,
    "ends": np.array([3, 5], np.int32),
    "ends and starts": np.array([5, 4, 2, 0], np.int32),
    "raw": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    "rows": (np.arange(B * S * S).reshape(B, S, S) % 3 != 0).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int, tmp_path: Path) -> None:
    inputs = [TOKENS, draw(E, 3 * E), draw(3 * E), MASKS[mask]]
    # Beside -10000, float32 has few digits of the scores.
    rtol = 1e-3 if causal else 1e-4
    run("Attention", inputs, ["y"], tmp_path, rtol=rtol, num_heads=N, unidirectional=causal)


def test_attention_with_a_past_and_other_sizes(tmp_path: Path) -> None:
    past = draw(2, B, N, P, D)
    inputs = [TOKENS, draw(E, 3 * E), draw(3 * E), None, past]
    run("Attention", inputs, ["y", "present"], tmp_path, num_heads=N, unidirectional=1, scale=0.3)
    inputs = [*inputs[:4], None, draw(1, N, S, S)]
    run("Attention", inputs, ["y"], tmp_path, num_heads=N)
    inputs = [TOKENS, draw(E, 2 * E + 16), draw(2 * E + 16)]
    run("Attention", inputs, ["y"], tmp_path, num_heads=N, qkv_hidden_sizes=[E, E, 16])


PADDING = {name: one for name, one in MASKS.items() if name in ("none", "raw", "ends", "rows")}


@pytest.mark.parametrize("mask", PADDING)
def test_multi_head_attention(mask: str, tmp_path: Path) -> None:
    inputs = [TOKENS, draw(B, S, E + 0), draw(B, S, 16), draw(2 * E + 16), PADDING[mask]]
    run("MultiHeadAttention", inputs, ["y"], tmp_path, num_heads=N)


def test_multi_head_attention_with_a_past(tmp_path: Path) -> None:
    past, bias = draw(B, N, P, D), draw(B, 1, S, P + S)
    inputs = [TOKENS, TOKENS * 2, TOKENS - 1, None, None, bias, past, past + 1]
    outputs = ["y", "key", "value"]
    run("MultiHeadAttention", inputs, outputs, tmp_path, num_heads=N, unidirectional=1)


def test_multi_head_attention_of_cross_attention(tmp_path: Path) -> None:
    keys = draw(B, N, 7, D)
    run("MultiHeadAttention", [TOKENS, keys, keys * 2], ["y"], tmp_path, num_heads=N)


def cached(past: Sequence[int], length: int, tail: int, kv: int = 2) -> list[np.ndarray | None]:
    """Operands of GroupQueryAttention for rows with so many keys before."""
    batch = len(past)
    cache = draw(batch, kv, max(past), D) if max(past) else None
    lengths = np.array([one + length - 1 for one in past], np.int32)
    total = np.array(max(past) + length, np.int32)
    tables = [np.cos(draw(64, D // 2)), np.sin(draw(64, D // 2))]
    heads = [draw(batch, length, count * D) for count in (N, kv, kv)]
    return [*heads, cache, None if cache is None else cache + 1, lengths, total, *tables][:tail]


@pytest.mark.parametrize(
    ("past", "length", "options"),
    [
        ((0, 0), 6, {}),
        ((4, 4), 1, {}),
        ((3, 5), 1, {}),
        ((4, 4), 1, {"local_window_size": 2}),
        ((0, 0), 6, {"local_window_size": 2}),
        ((0, 0), 6, {"softcap": 5.0}),
        ((4, 4), 1, {"smooth_softmax": 1}),
        ((4,), 3, {"rotary_interleaved": 1, "scale": 0.2}),
    ],
)
def test_group_query_attention(
    past: tuple[int, ...], length: int, options: dict[str, Any], tmp_path: Path
) -> None:
    inputs = cached(past, length, 9)
    names = ["y", "key", "value"]
    heads = {"num_heads": N, "kv_num_heads": 2}
    op = "GroupQueryAttention"
    run(op, inputs, names, tmp_path, do_rotary=1, **heads, **options)
    run(op, inputs[:7], names, tmp_path, **heads, **options | {"rotary_interleaved": 0})


def test_group_query_attention_of_packed_operands_and_sinks(tmp_path: Path) -> None:
    operands = cached((4, 4), 1, 9)
    packed = np.concatenate(operands[:3], -1)
    heads = {"num_heads": N, "kv_num_heads": 2}
    names = ["y", "key", "value"]
    inputs = [packed, None, None, *operands[3:]]
    run("GroupQueryAttention", inputs, names, tmp_path, do_rotary=1, **heads)
    bias, sink = draw(B, 1, 1, 5), draw(N)
    run("GroupQueryAttention", [*operands, None, bias, sink], names, tmp_path, do_rotary=1, **heads)


def test_group_query_attention_of_a_named_length(tmp_path: Path) -> None:
    shapes = {3: (B, 2, "past", D), 4: (B, 2, "past", D)}
    heads = {"num_heads": N, "kv_num_heads": 2}
    inputs = cached((4, 4), 1, 9)
    names = ["y", "key", "value"]
    run("GroupQueryAttention", inputs, names, tmp_path, shapes=shapes, do_rotary=1, **heads)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int, tmp_path: Path) -> None:
    tables = [np.cos(draw(16, D // 2)), np.sin(draw(16, D // 2))]
    places = np.array([[0, 3, 5, 2, 9], [1, 2, 3, 4, 5]])
    for x in (TOKENS, draw(B, N, S, D)):
        for positions in (places, np.array([7])):
            run(
                "RotaryEmbedding", [x, positions, *tables], ["y"], tmp_path, interleaved=interleaved
            )
    part = {"num_heads": 2, "rotary_embedding_dim": D}
    run("RotaryEmbedding", [TOKENS, places, *tables], ["y"], tmp_path, **part)


def test_normalizations_of_sums(tmp_path: Path) -> None:
    gamma, beta, bias = draw(E), draw(E) + 1, draw(E) - 1
    outputs = ["y", "", "", "sum"]
    for skip in (TOKENS * 2, draw(S, E), draw(1, S, E)):
        inputs = [TOKENS, skip, gamma, beta, bias]
        run("SkipLayerNormalization", inputs, outputs, tmp_path, epsilon=1e-5)
        inputs = [TOKENS, skip, gamma, bias]
        run("SkipSimplifiedLayerNormalization", inputs, outputs, tmp_path, epsilon=1e-5)
    run("SimplifiedLayerNormalization", [TOKENS, gamma], ["y"], tmp_path, domain="", epsilon=1e-6)


def test_embeddings(tmp_path: Path) -> None:
    ids = np.array([[1, 4, 2, 0, 0], [3, 3, 1, 2, 4]], np.int32)
    segments = (ids > 2).astype(np.int32)
    tables = [draw(6, E), draw(9, E), draw(2, E), draw(E), draw(E) + 1]
    mask = np.array(MASKS["raw"])
    outputs = ["y", "count", "sum"]
    op = "EmbedLayerNormalization"
    run(op, [ids, segments, *tables, mask], outputs, tmp_path, epsilon=1e-5)
    run(op, [ids, None, *tables[:2], None, *tables[3:]], ["y", "count"], tmp_path)
    places = np.array([[4, 3, 2, 1, 0]] * B, np.int32)
    run(op, [ids, segments, *tables, mask, places], ["y", "count"], tmp_path)


def test_activations_and_products(tmp_path: Path) -> None:
    x, bias = draw(3, 4, E), draw(E)
    for op in ("Gelu", "QuickGelu", "FastGelu"):
        run(op, [x], ["y"], tmp_path)
    for op in ("BiasGelu", "FastGelu"):
        run(op, [x, bias], ["y"], tmp_path)
    run("QuickGelu", [x], ["y"], tmp_path, alpha=1.0)
    right = draw(3, 5, E)
    run("FusedMatMul", [x, right], ["y"], tmp_path, transB=1, alpha=0.25)
    run("FusedMatMul", [draw(4, 3, 6), draw(3, 6, 5)], ["y"], tmp_path, transBatchA=1)
    left, weight = draw(4, 6), draw(6, 5)
    for name in ("Relu", "LeakyRelu", "Tanh"):
        chosen = {"activation": name}
        chosen |= {"activation_alpha": 0.3} if name == "LeakyRelu" else {}
        factors = {"alpha": 0.5, "beta": 2.0, "transA": 0, "transB": 0}
        run("FusedGemm", [left, weight, draw(5)], ["y"], tmp_path, **factors, **chosen)
