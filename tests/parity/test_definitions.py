"""Every operation evaluated in float64 and compiled: two programs that share no code agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import CPU, BufferType, Graph, Tensor, TensorType, executor, ops
from maxtool.graph.ops.operation_table import OPS
from maxtool.parity import evaluate
from maxtool.parity.definitions import COMPUTED, DEFINITIONS, MOVED, UNDEFINED
from maxtool.quantization import QuantizationEncoding, quantize

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(7)


class Buffer(NamedTuple):
    """An input that is written in place."""

    array: Array


class Case(NamedTuple):
    """An operation applied to operands.

    Attributes:
        op: The operation whose definition is meant.
        call: From the operands to its results.
        operands: Arrays and buffers.
    """

    op: str
    call: Callable[..., Any]
    operands: tuple[Any, ...]


def floats(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def quants(*shape: int) -> Array:
    return rng.integers(-127, 128, shape, "i1")


def scales(*shape: int) -> Array:
    return (rng.random(shape) / 64).astype("f2")


def whole(*values: int, dtype: str = "i8") -> Array:
    return np.array(values, dtype)


def case(op: str, *operands: Any, call: Callable[..., Any] | None = None) -> Case:
    return Case(op, call or getattr(ops, op), operands)


X, Y = floats(3, 4), floats(3, 4)
INTS = whole(-7, -1, 0, 3, 100, -128, dtype="i1")
BYTES = whole(1, 2, 255, 129, 77, 0, dtype="u1")
BOOLS = rng.random((3, 4)) < 0.5
POSITION = whole(2, dtype="i4")
SLOTS = whole(3, 1, dtype="i4"), whole(4, 0, dtype="i4")  # positions, and slots
HEADS = floats(2, 3, 4, 8)  # batch, seq, heads, dim
KEYS, ROWS = floats(2, 2, 8, 6), floats(2, 2, 6, 8)
IMAGE, FILTER = floats(2, 6, 5, 4), floats(3, 2, 2, 6)
LINE, VOLUME = floats(2, 6, 4), floats(2, 6, 5, 3, 4)
WORDS = quants(2, 2, 16, 6 * 4).view("i4")
IN_BLOCKS = WORDS, scales(2, 2, 2, 6), quants(2, 2, 6, 64), scales(2, 2, 6, 2)
SLOTS_OF_TWO = whole(3, 1, dtype="i4"), whole(1, 0, dtype="i4")
QUERY, OTHERS = floats(2, 4, 3, 8), floats(2, 2, 5, 8)
PLACES = whole(2, -1, 0, 2)
TIES = np.array([[3, 1, 3, 2], [0, 0, 0, 0], [-1, 5, 5, 9]], "f4")


def attention(query: Tensor, key: Tensor, value: Tensor, at: Tensor, **options: Any) -> Tensor:
    return ops.attention(query, key, value, at, scale=0.3, **options)


def slotted(
    query: Tensor, key: Tensor, value: Tensor, at: Tensor, slot: Tensor, **options: Any
) -> Tensor:
    return attention(query, key, value, at, slot=slot, **options)


def in_blocks(query: Tensor, *operands: Tensor, **options: Any) -> Tensor:
    key, value, (at, *slot) = operands[:2], operands[2:4], operands[4:]
    options |= {"slot": slot[0]} if slot else {}
    return ops.quantized_attention(query, key, value, at, scale=0.3, **options)


def slotted_key(cache: Tensor, x: Tensor, at: Tensor, slot: Tensor, **options: Any) -> Tensor:
    return ops.cache_write_key(cache, x, at, slot=slot, **options)


def slotted_value(cache: Tensor, x: Tensor, at: Tensor, slot: Tensor) -> Tensor:
    return ops.cache_write_value(cache, x, at, slot=slot)


def sampled(*operands: Tensor) -> list[Tensor]:
    return list(ops.sample(*operands))


def drawn(*settings: float, penalty: float = 1.3) -> tuple[Any, ...]:
    seen, tokens = np.zeros((2, 50), "i1"), np.array([[3, 60, -1], [7, 7, 9]])
    draws = np.array([0.1, 0.9, 0.35], "f4")
    limits = np.array([*settings, penalty], "f4")
    return Buffer(seen), 3 * floats(2, 50), tokens, draws, POSITION, limits


def named(names: str, *operands: Any) -> list[Case]:
    """The same operands for several operations."""
    return [case(op, *operands) for op in names.split()]


def along(names: str, x: Array, axis: int | list[int] | None) -> list[Case]:
    """Operations along some dimensions."""
    return [
        case(op, x, call=lambda y, op=op: getattr(ops, op)(y, axis=axis)) for op in names.split()
    ]


CASES = [
    *named("abs ceil cos erf exp floor gelu hard_swish negative relu round sigmoid silu sin", X),
    *named("softplus tanh trunc", X),
    *named("softmax logsoftmax l2_norm", X),
    *named("abs ceil floor negative relu round trunc", INTS),
    *named("log log1p rsqrt sqrt", np.abs(X) + 0.1),
    *named("acos asin atanh", np.tanh(X)),
    *named("atan", X),
    *named("bitwise_and bitwise_or bitwise_xor", INTS, whole(3, -2, 5, -4, 7, 3, dtype="i1")),
    *named("bitwise_not", INTS),
    *named("shift_left shift_right", BYTES, whole(0, 1, 7, 8, 200, 3, dtype="u1")),
    case("bitcast", X, call=lambda x: ops.bitcast(x, DType.int32)),
    case("bitcast", X, call=lambda x: ops.bitcast(x[0, 0], DType.uint32)),
    case("bitcast", BYTES, call=lambda x: ops.bitcast(x, DType.int8)),
    case("gelu_quick", X, call=lambda x: ops.gelu(x, "quick")),
    case("gelu_tanh", X, call=lambda x: ops.gelu(x, "tanh")),
    *named("add sub mul div floordiv mod maximum minimum", X, Y),
    *named("add mul floordiv mod", INTS, whole(3, -2, 5, -4, 7, 3, dtype="i1")),
    *named("floordiv mod", INTS, np.zeros(6, "i1")),
    case("pow", np.abs(X), Y),
    case("pow", whole(-3, -1, -1, 0, 2, 2), whole(3, -1, -2, 0, -1, 5)),
    *named("equal not_equal greater less greater_equal less_equal", X, np.where(BOOLS, X, Y)),
    *named("logical_and logical_or logical_xor", BOOLS, X > 0),
    case("logical_not", BOOLS),
    case("is_nan", np.array([1, np.nan, np.inf], "f4")),
    case("is_inf", np.array([1, np.nan, -np.inf], "f4")),
    case("where", BOOLS, X, Y),
    case("cast", X * 9, call=lambda x: ops.cast(x, DType.int32)),
    case("cast", X, call=lambda x: ops.cast(ops.cast(x, DType.bfloat16), DType.float32)),
    case("cast", X, call=lambda x: ops.cast(ops.cast(x, DType.float16), DType.float64)),
    case("cast", INTS, call=lambda x: [ops.cast(x, DType.bool), ops.cast(x, DType.uint8)]),
    *along("all any", BOOLS, 0),
    *along("logsumexp max mean min prod sum", floats(3, 4, 2), [0, 2]),
    case("sum", INTS),
    *named("argmax argmin", TIES),
    *along("argmax argmin", TIES, None),
    case("argsort", TIES),
    case("argsort", TIES, call=lambda x: ops.argsort(x, ascending=False, axis=0)),
    case("top_k", TIES, call=lambda x: list(ops.top_k(x, 2))),
    case("top_k", TIES, call=lambda x: list(ops.top_k(x, 2, axis=0))),
    case("cumsum", X),
    case("cumsum", INTS, call=lambda x: ops.cumsum(x, exclusive=True, reverse=True)),
    case("broadcast_to", X, call=lambda x: ops.broadcast_to(x, [2, 3, 4])),
    case("concat", X, Y, call=lambda x, y: ops.concat([x, y], 1)),
    case("pad", X, call=lambda x: ops.pad(x, [1, 0, 2, 3], value=4.5)),
    case("permute", X, call=lambda x: ops.permute(x, [1, 0])),
    case("range", X, call=lambda x: ops.range(x[0, 0], 9.0, 0.5, out_dim=5)),
    case("rebind", X, call=lambda x: ops.rebind(x, ["rows", "columns"])),
    case("reshape", X, call=lambda x: ops.reshape(x, [2, 6])),
    case("slice", X, call=lambda x: [x[1:], x[:, ::-2], x[-1, 0:0]]),
    case("transfer_to", X, call=lambda x: ops.transfer_to(x, CPU(1))),
    case("gather", X, PLACES, call=lambda x, i: ops.gather(x, i, 1)),
    case("gather_nd", X, np.array([[0, -1], [2, 9]]), call=ops.gather_nd),
    case("gather_nd", X, np.array([[1], [0], [3]]), call=lambda x, i: ops.gather_nd(x, i, 1)),
    *(case(op, X, floats(3, 5), rng.integers(-5, 6, (3, 5))) for op in ("scatter", "scatter_add")),
    case("scatter_add", INTS, whole(90, 90, 1, dtype="i1"), whole(4, 4, -6)),
    case("scatter_nd", X, floats(4, 4), np.array([[0], [-1], [0], [9]])),
    case("counted", np.array(5), call=lambda n: ops.counted(n, "numbers")),
    case("nonzero", BOOLS, call=lambda x: ops.nonzero(x, "count")),
    case("linear", X, floats(5, 4), floats(5)),
    case("matmul", floats(2, 1, 3, 4), floats(5, 4, 2)),
    case("embedding", PLACES, X),
    case("layer_norm", X, floats(4), floats(4), call=lambda *x: ops.layer_norm(*x, 1e-3)),
    case("group_norm", IMAGE, floats(6), floats(6), call=lambda *x: ops.group_norm(*x, 2, 1e-3)),
    case("rms_norm", X, floats(4), call=lambda x, w: ops.rms_norm(x, w, 1e-3, 1.0, True)),
    case("expert_linear", X, floats(3, 5, 4), np.array([[0, 1], [2, 9], [1, -1]])),
    case("expert_linear", floats(3, 2, 4), floats(3, 5, 4), np.array([[0, 1], [2, 2], [1, 0]])),
    case("weighted_sum", X, floats(3)),
    case("rope", HEADS, floats(6, 3), floats(6, 3), POSITION),
    case(
        "rope_angles",
        PLACES[None],
        np.abs(floats(4, 3)),
        POSITION,
        call=lambda *x: list(ops.rope_angles(*x, original=4, factor=1.5, long_factor=0.7)),
    ),
    case("add_positions", floats(2, 3, 4), floats(4, 4), POSITION),
    case("cache_write_key", Buffer(floats(2, 4, 8, 6)), HEADS, POSITION),
    case(
        "cache_write_key",
        floats(2, 4, 6, 8),
        HEADS,
        whole(4, dtype="i4"),
        call=lambda *x: ops.cache_write_key(*x, transposed=False),
    ),
    case("cache_write_value", Buffer(floats(2, 4, 6, 8)), HEADS, POSITION),
    case("attention", HEADS, KEYS, ROWS, POSITION, call=attention),
    case(
        "attention",
        HEADS,
        KEYS,
        ROWS,
        POSITION,
        call=lambda *x: attention(*x, window=2, softcap=0.7),
    ),
    case(
        "attention",
        HEADS,
        floats(2, 2, 6, 8),
        ROWS,
        POSITION,
        call=lambda *x: attention(*x, transposed=False),
    ),
    case("slot_write_key", Buffer(floats(5, 4, 8, 6)), HEADS, *SLOTS, call=slotted_key),
    case(
        "slot_write_key",
        Buffer(floats(5, 4, 6, 8)),
        HEADS,
        *SLOTS,
        call=lambda *x: slotted_key(*x, transposed=False),
    ),
    case("slot_write_value", Buffer(floats(5, 4, 6, 8)), HEADS, *SLOTS, call=slotted_value),
    case("slot_attention", HEADS, floats(5, 2, 8, 6), floats(5, 2, 6, 8), *SLOTS, call=slotted),
    case(
        "slot_attention",
        HEADS,
        floats(5, 2, 6, 8),
        floats(5, 2, 6, 8),
        *SLOTS,
        call=lambda *x: slotted(*x, window=2, softcap=0.7, transposed=False),
    ),
    case("cache_write_key", Buffer(quants(2, 4, 8, 6)), quants(2, 3, 4, 8), POSITION),
    case("cache_write_value", Buffer(scales(2, 4, 6, 8)), scales(2, 3, 4, 8), POSITION),
    case("quantize_q8_0", floats(2, 3, 2, 64), call=lambda x: list(ops.quantize_q8_0(x))),
    case(
        "quantize_q8_0",
        floats(2, 3, 2, 64),
        call=lambda x: list(ops.quantize_q8_0(x, packed=True)),
    ),
    case(
        "cache_write_key",
        Buffer(WORDS.copy()),
        whole(*range(192), dtype="i4").reshape(2, 3, 2, 16),
        POSITION,
    ),
    case("quantized_attention", floats(2, 3, 4, 64), *IN_BLOCKS, POSITION, call=in_blocks),
    case(
        "quantized_attention",
        floats(2, 3, 4, 64),
        *IN_BLOCKS,
        *SLOTS_OF_TWO,
        call=lambda *x: in_blocks(*x, window=2, softcap=0.7),
    ),
    *(
        case(
            "causal_conv1d",
            Buffer(floats(rows, 2, 6)),
            floats(2, 5, 6),
            floats(3, 6),
            *where,
            call=lambda state, x, weight, at, slot=None: list(
                ops.causal_conv1d(x, weight, state, at, slot=slot)
            ),
        )
        for rows, *where in ((2, whole(0, dtype="i4")), (5, *SLOTS))
    ),
    *(
        case(
            "linear_attention",
            Buffer(floats(rows, 4, 3, 5)),
            floats(2, 6, 2, 3),
            floats(2, 6, 2, 3),
            floats(2, 6, 4, 5),
            np.abs(floats(2, 6, 4, *channels)) / 4,
            *([floats(2, 6, 4)] if has_beta else []),
            *where,
            call=lambda state, q, k, v, decay, *rest, has_beta=has_beta: list(
                ops.linear_attention(
                    *(q, k, v, decay, state, rest[has_beta]),
                    beta=rest[0] if has_beta else None,
                    slot=rest[has_beta + 1] if len(rest) > has_beta + 1 else None,
                )
            ),
        )
        for channels in ((), (3,))
        for has_beta in (True, False)
        for rows, *where in ((2, whole(0, dtype="i4")), (5, *SLOTS))
    ),
    *(
        case(
            "selective_scan",
            Buffer(floats(rows, 3, 5)),
            floats(2, 6, 3),
            floats(2, 6, 3),
            floats(2, 6, 5),
            np.abs(floats(2, 6, 5)),
            -np.abs(floats(3, 5)),
            *where,
            call=lambda state, *x: list(
                ops.selective_scan(*x[:5], state, x[5], slot=x[6] if len(x) > 6 else None)
            ),
        )
        for rows, *where in ((2, whole(0, dtype="i4")), (5, *SLOTS))
    ),
    case("scaled_dot_product_attention", QUERY, OTHERS, OTHERS, floats(3, 5)),
    case(
        "scaled_dot_product_attention",
        QUERY,
        OTHERS,
        floats(2, 2, 5, 6),
        np.array([[True, False, True, True, False]] * 2 + [[False] * 5]),
        call=lambda *x: ops.scaled_dot_product_attention(*x, causal=True, scale=0.4),
    ),
    *(
        case("sample", *drawn(*limits), call=sampled)
        for limits in ((0, 0, 1, 0), (0.8, 7, 0.9, 0.02), (1.5, 0, 1, 0))
    ),
    case(
        "conv1d",
        floats(2, 7, 4),
        floats(3, 2, 6),
        call=lambda x, w: ops.conv1d(x, w, 2, 2, (1, 2), 2),
    ),
    case(
        "conv2d",
        IMAGE,
        FILTER,
        floats(6),
        call=lambda x, w, b: ops.conv2d(x, w, (2, 1), (1, 2), (1, 0, 2, 1), 2, b),
    ),
    *(
        case(
            "integer_convolution",
            rng.integers(*limits, (*image.shape[:-1], 4), dtype),
            quants(*(3, 2, 2)[: image.ndim - 2], 2, 6),
            rng.integers(-9999, 9999, 6, "i4"),
            call=lambda x, w, b, zero=zero: ops.integer_convolution(x, w, zero, 2, 1, 1, 2, b),
        )
        for image, dtype, limits, zero in [
            (LINE, "i1", (-128, 128), -3),
            (IMAGE, "u1", (0, 256), 130),
            (VOLUME, "i1", (-128, 128), 0),
        ]
    ),
    *(
        case(
            f"conv_transpose{more + 1}d",
            image,
            floats(*(2, 3, 2)[: more + 1], 2, 6),
            floats(6),
            call=lambda x, w, b, more=more: getattr(ops, f"conv_transpose{more + 1}d")(
                x, w, 2, 1, [1, -1, *(0, 1) * more], 2, b
            ),
        )
        for more, image in enumerate((LINE, IMAGE, VOLUME))
    ),
    case("conv3d", VOLUME, floats(2, 3, 2, 4, 6), call=lambda x, w: ops.conv3d(x, w, 2, 1, 1)),
    *(
        case(f"{name}{more + 1}d", image, call=lambda x, call=call: call(x, 2, 2, 1, 1, True))
        for more, image in enumerate((LINE, IMAGE, VOLUME))
        for name, call in [
            ("max_pool", getattr(ops, f"max_pool{more + 1}d")),
            ("max_pool_indices", ops.max_pool_indices),
            ("avg_pool", getattr(ops, f"avg_pool{more + 1}d")),
            ("sum_pool", ops.lp_pool),
        ]
    ),
    case("max_pool2d", IMAGE, call=lambda x: ops.max_pool2d(x, (2, 3), 2, 1, 1)),
    case("max_pool2d", IMAGE, call=lambda x: ops.max_pool2d(x, (1, 2), (1, 2), ceil_mode=True)),
    *(
        case(
            "avg_pool2d",
            IMAGE,
            call=lambda x, counts=counts: ops.avg_pool2d(x, (3, 2), 2, 1, 1, True, counts),
        )
        for counts in (True, False)
    ),
]


def type_of(operand: Array | Buffer) -> TensorType:
    array = operand.array if isinstance(operand, Buffer) else operand
    kind = BufferType if isinstance(operand, Buffer) else TensorType
    return kind(DType.from_numpy(array.dtype), array.shape)


def results_of(given: Any) -> list[Tensor]:
    return list(given) if isinstance(given, list | tuple) else [given]


def arrays_of(one: Case) -> list[Array]:
    """Copies of the operands, as calls write into buffers."""
    return [np.array(given.array if isinstance(given, Buffer) else given) for given in one.operands]


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    """One graph for each case."""
    return [
        Graph(
            f"case_{number}",
            lambda *x, one=one: results_of(one.call(*x)),
            map(type_of, one.operands),
        )
        for number, one in enumerate(CASES)
    ]


@pytest.fixture(scope="module")
def outputs() -> list[list[Array]]:
    """The outputs of compiled code, of all cases in one program."""
    arrays = [array for one in CASES for array in arrays_of(one)]
    types = [type_of(given) for one in CASES for given in one.operands]
    counts = []

    def everything(*inputs: Tensor) -> list[Tensor]:
        left = iter(inputs)
        made = [results_of(one.call(*(next(left) for _ in one.operands))) for one in CASES]
        counts.extend(map(len, made))
        return [value for values in made for value in values]

    run = executor.find_executor().compile(Graph("everything", everything, types), {})
    found = iter([value.to_numpy() for value in run(*map(Tensor, arrays))])
    return [[next(found) for _ in range(count)] for count in counts]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[one.op for one in CASES])
def test_compiled_code_computes_what_the_definition_says(
    graphs: list[Graph], outputs: list[list[Array]], number: int
) -> None:
    graph, arrays = graphs[number], arrays_of(CASES[number])
    assert CASES[number].op in {node.op for node in graph.nodes}
    wide = [x.astype("f8") if x.dtype.kind == "f" else x for x in arrays]
    for wanted, made, value in zip(
        evaluate(graph, wide), outputs[number], graph.outputs, strict=True
    ):
        assert wanted.dtype == ("f8" if value.dtype.is_float() else made.dtype)
        np.testing.assert_allclose(made.astype(wanted.dtype), wanted, rtol=2e-5, atol=2e-6)


def test_every_operation_has_a_definition_or_a_reason() -> None:
    assert DEFINITIONS.keys() | UNDEFINED.keys() == OPS.keys()
    assert not DEFINITIONS.keys() & UNDEFINED.keys()
    assert not COMPUTED.keys() & MOVED.keys()


def test_every_definition_is_compared() -> None:
    nothing = {"print", "shape_to_tensor"}  # see test_evaluator.py
    assert {one.op for one in CASES} | nothing == DEFINITIONS.keys()


def test_blocks_that_files_cannot_hold() -> None:
    """NaN and infinities give NaN scales, too large numbers infinite ones; others are ggml's."""
    x = np.random.default_rng(3).standard_normal((1, 1, 1, 160)).astype(np.float32)
    x[..., 5], x[..., 40], x[..., 70] = np.nan, np.inf, 1e7
    quants, scales = DEFINITIONS["quantize_q8_0"](x, packed=False)
    np.testing.assert_array_equal(np.isnan(scales[0, 0, 0]), [True, True, False, False, False])
    assert np.isinf(scales[0, 0, 0, 2])
    packed = quantize(x[..., 96:], QuantizationEncoding.Q8_0).reshape(2, 34)
    np.testing.assert_array_equal(quants[0, 0, 0, 96:], packed[:, 2:].view(np.int8).reshape(-1))
    np.testing.assert_array_equal(scales[0, 0, 0, 3:], packed[:, :2].view(np.float16)[:, 0])
