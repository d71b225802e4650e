"""``Module.compile``: weights, nesting, and arguments checked at every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, MissingWeight, UnexpectedWeight
from maxtool.graph import BufferType, Tensor, TensorType, Weight, ops
from maxtool.nn import Embedding, Linear, Module, RMSNorm
from maxtool.nn.compiled import CompiledModule
from maxtool.parity.activation_rounding import rounded
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.codec import dequantize, quantize
from maxtool.weights.weight_data import WeightData

F32 = DType.float32
rng = np.random.default_rng(0)


class MLP(Module[..., Any]):
    def __init__(self) -> None:
        self.embed = Embedding(9, 8, DType.bfloat16)
        self.up = Linear(8, 6, has_bias=True)
        self.norm = RMSNorm(6)
        self.down = Linear(6, 8, DType.float16)

    def forward(self, ids: Tensor, residual: Tensor, both: dict[str, Tensor]) -> Any:
        hidden = self.norm(ops.silu(self.up(self.embed(ids))))
        result = self.down(hidden) + residual
        return {"result": result, "more": (hidden[:, -1], [both["a"] + both["b"]])}, None


TYPES: list[Any] = [
    TensorType(DType.int64, ["batch", "seq"]),
    TensorType(F32, ["batch", "seq", 8]),
    {"a": TensorType(F32, ["batch"]), "b": TensorType(F32, [1])},
]


def values(model: Module[..., Any]) -> dict[str, Any]:
    return {
        name: rng.standard_normal(value.shape).astype(np.asarray(value).dtype)
        for name, value in model.state_dict().items()
    }


def arguments(batch: int = 2, seq: int = 3) -> list[Any]:
    return [
        rng.integers(0, 9, (batch, seq)),
        rng.standard_normal((batch, seq, 8)).astype(np.float32),
        {"a": np.ones(batch, np.float32), "b": Tensor([2.0])},
    ]


def expected(state: dict[str, Any], ids: Any, residual: Any, *_: Any) -> tuple[Any, Any]:
    wide = {name: value.astype(np.float32) for name, value in state.items()}
    x = wide["embed.weight"][ids] @ wide["up.weight"].T + wide["up.bias"]
    x = x / (1 + np.exp(-x))
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * wide["norm.weight"]
    return x @ wide["down.weight"].T + residual, x[:, -1]


@pytest.fixture(scope="module")
def model() -> MLP:
    module = MLP()
    module.load_state_dict(values(module))
    return module


@pytest.fixture(scope="module")
def compiled(model: MLP) -> CompiledModule:
    return model.compile(*TYPES)


@pytest.mark.parametrize(("batch", "seq"), [(2, 3), (1, 7), (0, 2)])
def test_results_are_nested_as_forward_nests_them(
    model: MLP, compiled: CompiledModule, batch: int, seq: int
) -> None:
    inputs = arguments(batch, seq)
    (got, nothing) = compiled(inputs[0], both=inputs[2], residual=Tensor(inputs[1]))
    assert nothing is None
    result, last = expected(model.state_dict(), *inputs)
    np.testing.assert_allclose(got["result"].to_numpy(), result, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got["more"][0].to_numpy(), last, rtol=1e-4, atol=1e-4)
    assert got["more"][1][0].to_numpy().tolist() == [3.0] * batch


def test_what_is_compiled_says_what_it_takes(compiled: CompiledModule) -> None:
    assert repr(compiled).startswith("CompiledModule(MLP, ids: int64[batch, seq], residual: float")


ids, residual, both = arguments()
BAD: list[tuple[list[Any], str]] = [
    ([ids, residual], r"takes 3 arguments \(ids, residual, both\), got 2"),
    ([ids, residual, both, both], "got 4"),
    ([ids.astype(np.int32), residual, both], r"'ids': expected int64\[batch, seq\], got int32\[2"),
    ([ids[0], residual, both], r"'ids': expected int64\[batch, seq\], got int64\[3\]"),
    ([ids, residual[..., :4], both], r"'residual': .*8\], got float32\[2, 3, 4\]"),
    ([ids, residual[:1], both], "'residual': expected 'batch' to be 2 as in 'ids', got 1"),
    ([ids, residual[:, :2], both], "'residual': expected 'seq' to be 3 as in 'ids', got 2"),
    ([ids[:, :0], residual[:, :0], both], "'ids': expected 'seq' to be at least 1, got 0"),
    ([ids, residual, residual], r"'both': expected \{a: float32\[batch\], .*got float32\[2, 3"),
    ([ids, residual, {"a": both["a"]}], r"'both': expected \{.*got \{a: float32\[2\]\}"),
    ([ids, residual, both | {"b": 2.0}], r"'both': .*b: float\}"),
    ([ids, residual, [both["a"], both["b"]]], r"'both': .*got \[float32\[2\], float32\[1\]\]"),
    ([ids.astype(complex), residual, both], "'ids': expected int64.*complex128"),
    ([ids.astype(np.int32), residual[0], both], r"'ids'.*; argument 'residual'"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_arguments_that_do_not_fit(
    compiled: CompiledModule, given: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compiled(*given)


def test_named_arguments_that_do_not_fit(compiled: CompiledModule) -> None:
    for named in ({"other": ids}, {"ids": ids}):
        with pytest.raises(ValueError, match="got 3 and '"):
            compiled(ids, residual, both, **named)


def test_weights_given_are_used_instead(model: MLP) -> None:
    own, other = model.state_dict(), values(model)
    got, _ = model.compile(*TYPES, weights=other)(*arguments_fixed())
    np.testing.assert_allclose(
        got["result"].to_numpy(), expected(other, *arguments_fixed())[0], rtol=1e-4, atol=1e-4
    )
    assert all(model.state_dict()[name] is array for name, array in own.items())


def arguments_fixed() -> list[Any]:
    return [ids, residual, both]


def test_values_are_captured(model: MLP, compiled: CompiledModule) -> None:
    before = compiled(*arguments_fixed())[0]["result"].to_numpy()
    kept = {name: array.copy() for name, array in model.state_dict().items()}
    try:
        for array in model.state_dict().values():
            array[...] = 0
        after = compiled(*arguments_fixed())[0]["result"].to_numpy()
    finally:
        model.load_state_dict(kept)
    np.testing.assert_array_equal(after, before)


def test_weights_that_do_not_fit(model: MLP) -> None:
    state = values(model)
    absent = {name: value for name, value in state.items() if name != "up.bias"}
    with pytest.raises(KeyError):
        model.compile(*TYPES, weights=absent)
    with pytest.raises(MissingWeight, match=r"'up.bias' is missing"):
        model.compile(*TYPES, weights=absent)
    with pytest.raises(UnexpectedWeight, match="'extra' is not used"):
        model.compile(*TYPES, weights=state | {"extra": state["up.bias"]})
    wide = {name: value.astype(np.float64) for name, value in state.items()}
    with pytest.raises(MisshapenWeight) as error:
        model.compile(*TYPES, weights=wide)
    assert len(error.value.problems) == len(state)


def test_a_module_without_data() -> None:
    with pytest.raises(MissingWeight) as error:
        Linear(4, 4, has_bias=True).compile(TensorType(F32, ["n", 4]))
    assert error.value.problems == ("bias", "weight")


def test_a_weight_changed_after_it_was_loaded() -> None:
    layer = Linear(4, 4)
    layer.load_state_dict(values(layer))
    layer.weight.shape = (2, 4)  # type: ignore[assignment]
    with pytest.raises(MisshapenWeight, match=r"float32\[4, 4\], declared float32\[2, 4\]"):
        layer.compile(TensorType(F32, ["n", 4]))


@pytest.mark.parametrize("encoding", [QuantizationEncoding.Q8_0, QuantizationEncoding.Q4_0])
def test_quantized_weights_stay_so(encoding: QuantizationEncoding) -> None:
    """Kernels multiply their blocks, with activations that are rounded by blocks, too."""
    layer = Linear(32, 4, quantization_encoding=encoding)
    blocks = quantize(rng.standard_normal((4, 32), np.float32), encoding)
    state = {"weight": WeightData(blocks, "weight", F32, (4, 32), encoding)}
    layer.load_state_dict(state)
    x = rng.standard_normal((2, 32), np.float32)
    wanted = rounded(x, 32) @ dequantize(blocks, encoding).T
    kind = TensorType(F32, ["n", 32])
    for run in (layer.compile(kind), layer.compile(kind, weights=state)):
        np.testing.assert_allclose(run(x).to_numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_tensors_and_weights_outside_the_tree_are_read_where_they_are() -> None:
    outside = Weight("outside", F32, [4])
    outside.bind(np.full(4, 3, np.float32))

    class Reads(Module[[Tensor], Tensor]):
        def __init__(self) -> None:
            self.own = Tensor(np.full(4, 2, np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return x * (self.own + 1.0) + outside

    kind, x = TensorType(F32, [4]), np.ones(4, np.float32)
    assert Reads().compile(kind)(x).to_numpy().tolist() == [6.0] * 4
    weights = {"own": np.zeros(4, np.float32)}
    assert Reads().compile(kind, weights=weights)(x).to_numpy().tolist() == [4.0] * 4


def test_a_buffer_is_written_in_place() -> None:
    class Writes(Module[..., Any]):
        def forward(self, cache: Tensor, x: Tensor, position: Tensor) -> Tensor:
            return ops.cache_write_value(cache, x, position) * 2.0

    cache = np.zeros((1, 1, 4, 2), np.float32)
    x, position = np.ones((1, 2, 1, 2), np.float32), np.array([1], np.int32)
    types = [BufferType(F32, cache.shape), TensorType(F32, x.shape), TensorType(DType.int32, [1])]
    run = Writes().compile(*types)
    assert run(cache, x, position).to_numpy().sum() == 8
    assert cache[0, 0, :, 0].tolist() == [0, 1, 1, 0]
    cache.flags.writeable = False
    with pytest.raises(ValueError, match=r"'cache': expected buffer .* got a read-only array"):
        run(cache, x, position)


def test_what_cannot_be_traced() -> None:
    class Branches(Module[[Tensor], Tensor]):
        def forward(self, x: Tensor) -> Tensor:
            return x if x else -x

    class Nothing(Module[[Tensor], None]):
        def forward(self, _: Tensor) -> None:
            return None

    kind = TensorType(F32, [4])
    with pytest.raises(TypeError, match="computed when the graph runs"):
        Branches().compile(kind)
    with pytest.raises(TypeError, match="positional argument"):
        Branches().compile(kind, kind)
    with pytest.raises(ValueError, match="Nothing returns no tensor"):
        Nothing().compile(kind)


def test_a_module_that_defines_call_names_its_arguments_too() -> None:
    class Calls(Module[..., Any]):
        def __call__(self, first: Tensor, *rest: Tensor) -> Tensor:
            return first + rest[0]

    run = Calls().compile(*[TensorType(F32, [2])] * 2)
    first = np.ones(2, np.float32)
    assert run(first, first).to_numpy().tolist() == [2, 2]
    with pytest.raises(ValueError, match="argument '1': expected"):
        run(first, np.ones(3, np.float32))


def test_quantized_weights_are_decoded_where_an_operation_runs_at_once() -> None:
    encoding = QuantizationEncoding.Q8_0
    layer = Linear(32, 4, quantization_encoding=encoding)
    blocks = quantize(rng.standard_normal((4, 32), np.float32), encoding)
    layer.weight.bind(blocks)
    x = rng.standard_normal((2, 32), np.float32)
    wanted = x @ dequantize(blocks, encoding).T
    np.testing.assert_allclose(layer(Tensor(x)).to_numpy(), wanted, rtol=1e-4, atol=1e-4)
