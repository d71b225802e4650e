"""States: all or nothing, and every problem at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from maxtool.driver import CPU, Buffer
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import MisshapenWeight, MissingWeight, ModelMismatch, UnexpectedWeight
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from maxtool.nn import Linear, Module, eager
from maxtool.nn.state import as_data
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.codec import quantize
from maxtool.weights.weight_data import WeightData

Array = np.ndarray[Any, Any]


class MLP(Module[[Tensor], Tensor]):
    def __init__(self) -> None:
        self.up = Linear(4, 6)
        self.gate = Linear(4, 6, dtype=DType.bfloat16)
        self.down = Linear(6, 4, has_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x) * self.gate(x))


def values() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"up.weight": (6, 4), "gate.weight": (6, 4), "down.weight": (4, 6), "down.bias": (4,)}
    state = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return state | {"gate.weight": state["gate.weight"].astype(ml_dtypes.bfloat16)}


def test_a_fresh_module_is_zero_if_that_is_allowed() -> None:
    model = MLP()
    with pytest.raises(MissingWeight) as error:
        model.state_dict(auto_initialize=False)
    assert len(error.value.problems) == 4
    state = model.state_dict()
    assert all(isinstance(value, Buffer) for value in state.values())
    assert {name: (value.shape, value.dtype) for name, value in state.items()} == {
        name: (array.shape, DType.from_numpy(array.dtype)) for name, array in values().items()
    }
    assert not any(value.to_numpy().any() for value in state.values())
    assert all(model.state_dict()[name] is value for name, value in state.items())


def test_what_is_loaded_is_kept_and_not_copied() -> None:
    model, state = MLP(), values()
    model.load_state_dict(state)
    assert all(model.state_dict()[name] is array for name, array in state.items())
    model.load_state_dict(values())
    assert model.state_dict()["up.weight"] is not state["up.weight"]


def test_every_kind_of_value_is_taken() -> None:
    class OfDlpack:
        def __init__(self, array: Array) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    state = values()
    kinds: list[Callable[[Array], Any]] = [
        Tensor,
        lambda array: WeightData.from_numpy(array, "anything"),
        np.asfortranarray,
        OfDlpack,
    ]
    model = MLP()
    model.load_state_dict(
        {name: kind(state[name]) for name, kind in zip(sorted(state), kinds, strict=True)}
    )
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(as_data(name, value).data, state[name])


def wrong() -> tuple[dict[str, Any], list[str]]:
    """A state with a problem of each kind, and what is said of each."""
    state: dict[str, Any] = values()
    state["dwn.bias"] = state.pop("down.bias")
    state["up.weight"] = state["up.weight"].T
    state["gate.weight"] = state["gate.weight"].astype(np.float32)
    state["down.weight"] = [1.0, 2.0]
    return state, [
        "'down.bias' is missing; did you mean 'dwn.bias'?",
        "'dwn.bias' is not used",
        "'down.weight': a list, not a NumPy array",
        "'gate.weight' is float32[6, 4], declared bfloat16[6, 4]",
        "'up.weight' is float32[4, 6], declared float32[6, 4]",
    ]


def test_all_problems_are_reported_and_nothing_changes() -> None:
    model, before = MLP(), values()
    model.load_state_dict(before)
    state, problems = wrong()
    with pytest.raises(MissingWeight) as error:
        model.load_state_dict(state)
    assert isinstance(error.value, KeyError) and isinstance(error.value, ValueError)
    result = error.value.problems
    assert all(one.startswith(start) for one, start in zip(result, problems, strict=True))
    with pytest.raises(MisshapenWeight) as error:
        model.load_state_dict(state, strict=False)
    assert len(error.value.problems) == 3
    assert all(model.state_dict()[name] is array for name, array in before.items())


def test_the_class_of_the_error_is_that_of_the_first_kind() -> None:
    with pytest.raises(UnexpectedWeight, match="'extra' is not used"):
        MLP().load_state_dict(values() | {"extra": np.zeros(1)})
    complex_bias = values() | {"down.bias": np.zeros(4, np.complex64)}
    with pytest.raises(MisshapenWeight, match=r"'down.bias': no DType for NumPy's 'complex64'"):
        MLP().load_state_dict(complex_bias)


def test_what_numpy_cannot_read_is_a_problem_of_the_state() -> None:
    class Refuses:
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("bfloat16")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(MisshapenWeight, match=r"'down.bias': NumPy cannot read it"):
        MLP().load_state_dict(values() | {"down.bias": Refuses()})  # type: ignore[dict-item]


def test_no_name_that_is_in_use_is_suggested() -> None:
    state = values()
    del state["up.weight"]
    with pytest.raises(MissingWeight) as error:
        MLP().load_state_dict(state)
    assert error.value.problems == ("'up.weight' is missing",)


def test_names_in_only_one_are_passed_over_when_not_strict() -> None:
    model, state = MLP(), values()
    del state["down.bias"]
    model.load_state_dict(state | {"extra": np.zeros(1)}, strict=False)
    assert model.up.weight.is_bound
    assert not model.down.raw_state_dict()["bias"].is_bound


def unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64 + 1
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def test_alignment_is_that_of_the_dtype_unless_said_otherwise() -> None:
    model, state = MLP(), values()
    state["up.weight"] = unaligned(state["up.weight"])
    with pytest.raises(MisshapenWeight, match=r"'up.weight' is not aligned to 4 bytes; pass"):
        model.load_state_dict(state)
    model.load_state_dict(state, weight_alignment=1)
    assert {weight.align for weight in model.raw_state_dict().values()} == {1}


def quantized() -> WeightData:
    encoding = QuantizationEncoding.Q8_0
    data = quantize(np.random.default_rng(1).standard_normal((6, 32), np.float32), encoding)
    return WeightData(data, "weight", DType.float32, (6, 32), encoding)


def test_encodings_are_compared_or_taken() -> None:
    layer, data = Linear(32, 6), quantized()
    with pytest.raises(MisshapenWeight, match="encoded Q8_0, declared as plain elements"):
        layer.load_state_dict({"weight": data})
    layer.load_state_dict({"weight": data}, override_quantization_encoding=True)
    assert layer.weight.quantization_encoding is QuantizationEncoding.Q8_0
    assert layer.state_dict()["weight"] is data.data
    declared = Linear(32, 6, quantization_encoding=QuantizationEncoding.Q8_0)
    declared.load_state_dict({"weight": data})


LOOKUPS: list[Callable[[dict[str, Array]], Callable[..., Array]]] = [
    lambda state: state.__getitem__,
    lambda state: lambda name: state[name],
    lambda state: lambda name, _old: state[name],
    lambda state: lambda name, state=state: state[name],
    lambda state: lambda *args: state[args[0]],
]


def eager_mlp() -> eager.Module[..., Any]:
    return eager.Sequential(eager.Linear(4, 6), eager.Linear(6, 4))


def assert_state(model: eager.Module[..., Any], state: dict[str, Array]) -> None:
    result = {name: tensor.to_numpy() for name, tensor in model.parameters}
    assert result.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(result[name], array)


def eager_values() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = {"0.weight": (6, 4), "0.bias": (6,), "1.weight": (4, 6), "1.bias": (4,)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("make", LOOKUPS)
def test_a_lookup_takes_the_name_or_the_name_and_the_old_value(
    make: Callable[[dict[str, Array]], Callable[..., Array]],
) -> None:
    model, state = eager_mlp(), eager_values()
    model.load_state(make(state))
    assert_state(model, state)


def test_a_lookup_sees_the_old_values() -> None:
    model, state = eager_mlp(), eager_values()
    model.load_state_dict(state)
    model.load_state(lambda _, old: old.to_numpy() * 2)
    assert_state(model, {name: array * 2 for name, array in state.items()})


@pytest.mark.parametrize("value", [KeyError("no"), np.zeros(3), None])
def test_a_lookup_that_fails_changes_nothing(value: object) -> None:
    model, state = eager_mlp(), eager_values()
    model.load_state_dict(state)

    def lookup(name: str) -> Any:
        if name == "1.weight" and isinstance(value, KeyError):
            raise value
        return value if name == "1.weight" else np.zeros_like(state[name])

    with pytest.raises(KeyError if isinstance(value, KeyError) else ModelMismatch):
        model.load_state(lookup)
    assert_state(model, state)


def test_tied_weights_are_loaded_by_their_owners_name() -> None:
    model, state = MLP(), values()
    model.gate.set_shared_weight("weight", model.up.weight)
    with pytest.raises(UnexpectedWeight, match=r"gate\.weight"):
        model.load_state_dict(state)
    del state["gate.weight"]
    model.load_state_dict(state)
    assert model.gate.weight.to_numpy() is state["up.weight"]


@dataclass(frozen=True, eq=False)
class Frozen(Module[[Tensor], Tensor]):
    weight: Tensor
    bound: Weight

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + self.bound


def test_plain_tensors_are_replaced_also_in_a_frozen_dataclass() -> None:
    layer = Frozen(Tensor([1.0, 2.0]), Weight("bound", DType.float32, [1]))
    layer.load_state_dict({"weight": np.ones(2, np.float32), "bound": np.ones(1, np.float32)})
    assert layer.weight.to_numpy().tolist() == [1, 1]


class Symbolic(Module[[Tensor], Tensor]):
    """Two tables of one size that is known when they are loaded."""

    def __init__(self) -> None:
        self.table = Weight("table", DType.float32, ["vocab", 4])
        self.scale = Weight("scale", DType.float32, ["vocab", 1])

    def forward(self, ids: Tensor) -> Tensor:
        return ops.embedding(ids, self.table) * ops.embedding(ids, self.scale)


def symbolic_state(vocab: int, others: int | None = None) -> dict[str, Array]:
    rng = np.random.default_rng(vocab)
    shapes = {"table": (vocab, 4), "scale": (others or vocab, 1)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def test_symbolic_sizes_are_those_of_what_is_loaded() -> None:
    model = Symbolic()
    with pytest.raises(MissingWeight, match=r"'table': \[vocab, 4\]"):
        model.state_dict()
    ids = np.array([[2, 0]])
    kind = TensorType(DType.int64, ["batch", "seq"])
    for vocab in (3, 7):  # loading again changes them again
        state = symbolic_state(vocab)
        model.load_state_dict(state)
        assert model.table.shape == [vocab, 4]
        assert model.table.declared_shape == ["vocab", 4]
        expected = state["table"][ids] * state["scale"][ids]
        np.testing.assert_allclose(model.compile(kind)(ids).to_numpy(), expected, rtol=1e-6)
    assert model.state_dict()["table"] is state["table"]
    for wrong in ({"table": np.zeros((3, 5), np.float32)}, {"table": np.zeros(3, np.float32)}):
        with pytest.raises(MisshapenWeight, match=r"declared float32\[vocab, 4\]"):
            model.load_state_dict(wrong, strict=False)
    with pytest.raises(MisshapenWeight, match=r"'scale': vocab is 4, and 3 in 'table'"):
        model.load_state_dict(symbolic_state(3, 4))


def test_symbolic_sizes_without_data_are_an_error_where_something_is_compiled() -> None:
    class Scale(Module[[Tensor], Tensor]):
        def __init__(self) -> None:
            self.w = Weight("w", DType.float32, ["n"])

        def forward(self, x: Tensor) -> Tensor:
            return x * self.w

    kind, values = TensorType(DType.float32, ["n"]), {"w": np.ones(3, np.float32)}
    graph = Graph("g", Scale(), [kind])
    with pytest.raises(MissingWeight, match=r"(?s)symbolic sizes.*'w': \[n\].*load a state first"):
        Scale().compile(kind)
    with pytest.raises(MissingWeight, match=r"'w': \[n\]"):
        Scale().compile(kind, weights=values)
    with pytest.raises(MissingWeight, match=r"'w': \[n\]"):
        InferenceSession().load(graph, weights_registry=values)


def test_zeros_of_a_quantized_weight_are_blocks() -> None:
    layer = Linear(64, 3, quantization_encoding=QuantizationEncoding.Q8_0)
    zeros = layer.state_dict()["weight"].to_numpy()
    assert (zeros.dtype, zeros.shape) == (np.uint8, (3, 68))
    x = np.ones((2, 64), np.float32)
    run = layer.compile(TensorType(DType.float32, ["n", 64]))
    np.testing.assert_array_equal(run(x).to_numpy(), np.zeros((2, 3)))


def test_two_names_of_one_weight_take_one_value() -> None:
    model = MLP()
    model.gate.weight = model.up.weight
    state = values()
    state["gate.weight"] = state["up.weight"].copy()
    assert list(model.raw_state_dict()) == list(state)
    model.load_state_dict(state)
    before = model.up.weight.to_numpy()
    state["gate.weight"] = state["up.weight"] * 2
    with pytest.raises(MisshapenWeight, match=r"'gate.weight' is the tensor 'up.weight' too"):
        model.load_state_dict(state)
    assert model.up.weight.to_numpy() is before


def test_what_is_set_over_a_shared_weight_is_the_modules_own() -> None:
    model = MLP()
    model.gate.set_shared_weight("weight", model.up.weight)
    assert "gate.weight" not in model.raw_state_dict()
    model.gate.weight = Weight("weight", DType.float32, [6, 4])
    assert "gate.weight" in model.raw_state_dict()
    with pytest.raises(TypeError, match="ndarray"):
        model.gate.set_shared_weight("weight", np.zeros(2))  # type: ignore[arg-type]


def test_eager_parameters_stay_on_their_device() -> None:
    model = eager.Linear(2, 3)
    model.to(CPU(1))
    model.load_state_dict({"weight": np.ones((3, 2), np.float32), "bias": np.ones(3, np.float32)})
    assert {tensor.device for _, tensor in model.parameters} == {CPU(1)}
