"""The corners of graph modules, row by row as the reference's BEHAVIOUR.md lists them.

Where this package does something else on purpose, the test says "instead"; docs/api.md lists those.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from maxtool import nn
from maxtool.driver import Buffer
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.graph import DeviceRef, Graph, TensorType, Weight
from maxtool.weights.weight_data import WeightData
from tests.api.graph_modules import CPU, MLP, Array, Linear, kind, mlp, run, values

# state


def test_state_is_zeros_in_the_order_of_attributes() -> None:
    state = MLP().state_dict()
    assert list(state) == ["up.weight", "gate.weight", "down.weight"]
    assert [tuple(value.shape) for value in state.values()] == [(10, 5), (10, 5), (5, 10)]
    assert all(isinstance(value, Buffer) for value in state.values())
    assert not any(np.asarray(value).any() for value in state.values())


def test_state_without_initialisation_names_what_is_unset() -> None:
    with pytest.raises(ValueError, match=r"(?s)up\.weight.*gate\.weight.*down\.weight"):
        MLP().state_dict(auto_initialize=False)


def test_names_stay_local_until_state_is_asked_for() -> None:
    model = MLP()
    assert {weight.name for weight in model.raw_state_dict().values()} == {"weight"}
    model.state_dict()
    assert [weight.name for weight in model.raw_state_dict().values()] == [*values()]


def test_loading_keeps_the_very_objects() -> None:
    model, state = MLP(), values()
    model.load_state_dict(state)
    assert all(value is state[name] for name, value in model.state_dict().items())
    buffers = {name: Buffer(value) for name, value in state.items()}
    model.load_state_dict(buffers)
    assert all(value is buffers[name] for name, value in model.state_dict().items())


def test_missing_and_unexpected_are_in_one_error() -> None:
    state = values()
    state["up.weigth"] = state.pop("up.weight")
    del state["down.weight"]
    with pytest.raises(ValueError, match=r"(?s)up\.weight") as caught:
        MLP().load_state_dict(state)
    for part in ("up.weight", "down.weight", "up.weigth"):
        assert part in str(caught.value)


def test_what_fails_to_load_changes_nothing() -> None:
    model = MLP()
    model.load_state_dict(values(0))
    wrong = values(1)
    wrong["down.weight"] = wrong["down.weight"].T
    with pytest.raises(ValueError, match=r"(?s)down\.weight.*5, 10.*10, 5|down\.weight.*10, 5"):
        model.load_state_dict(wrong)
    with pytest.raises(ValueError, match=r"down\.weight"):
        model.load_state_dict(wrong, strict=False)
    # instead of keeping those before the failing one
    for name, value in values(0).items():
        np.testing.assert_array_equal(np.asarray(model.state_dict()[name]), value)


def test_another_dtype_is_no_implicit_cast() -> None:
    state: dict[str, Any] = {name: value.astype(np.float64) for name, value in values().items()}
    with pytest.raises(ValueError, match=r"(?s)float32.*float64|float64.*float32"):
        MLP().load_state_dict(state)


def test_not_strict_leaves_what_is_missing_unset() -> None:
    model = MLP()
    model.load_state_dict({"up.weight": values()["up.weight"], "other": 1}, strict=False)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"gate\.weight"):
        model.state_dict(auto_initialize=False)
    np.testing.assert_array_equal(np.asarray(model.state_dict()["gate.weight"]), np.zeros((10, 5)))


def test_arrays_that_are_not_contiguous_are_accepted() -> None:
    model, state = MLP(), values()
    state["down.weight"] = np.asfortranarray(state["down.weight"])
    model.load_state_dict(state)
    x = np.ones((2, 5), np.float32)
    np.testing.assert_allclose(run(model, x), mlp(state, x), rtol=1e-4, atol=1e-5)


def test_a_list_is_no_value() -> None:
    state: dict[str, Any] = values()
    state["up.weight"] = state["up.weight"].tolist()
    with pytest.raises((TypeError, ValueError), match="list"):
        MLP().load_state_dict(state)


def test_weight_data_is_a_value() -> None:
    model, state = MLP(), values()
    data = {name: WeightData(value, name, DType.float32, value.shape)
            for name, value in state.items()}  # fmt: skip
    model.load_state_dict(data)
    np.testing.assert_array_equal(np.asarray(model.state_dict()["up.weight"]), state["up.weight"])


@pytest.mark.long
def test_loading_again_replaces() -> None:
    model = MLP()
    model.load_state_dict(values(0))
    compiled = model.compile(kind("rows", 5))
    model.load_state_dict(values(1))
    x = np.ones((2, 5), np.float32)
    np.testing.assert_allclose(run(model, x), mlp(values(1), x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(compiled(x).to_numpy(), mlp(values(0), x), rtol=1e-4, atol=1e-5)


def unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    view = raw.view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def test_unaligned_data_needs_the_alignment_to_be_said() -> None:
    model = MLP()
    state = {name: unaligned(value) for name, value in values().items()}
    with pytest.raises(ValueError, match="align"):
        model.load_state_dict(state)
    model.load_state_dict(state, weight_alignment=1)
    assert {weight.align for weight in model.raw_state_dict().values()} == {1}
    x = np.ones((2, 5), np.float32)
    np.testing.assert_allclose(run(model, x), mlp(values(), x), rtol=1e-4, atol=1e-5)


def test_the_key_comes_from_the_weights_name() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            self.foo = Weight("bar", DType.float32, (2,), CPU)

        def __call__(self) -> Any:
            return self.foo

    assert list(Odd().state_dict()) == ["bar"]


# the tree


def test_plain_lists_are_not_tracked() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            self.layers = [Linear(2, 2)]
            self.by_name = {"a": Linear(2, 2)}
            self.weights = [Weight("w", DType.float32, (2,), CPU)]

        def __call__(self, x: Any) -> Any:
            return x

    assert Holder().state_dict() == {}


def test_a_class_that_computes_nothing_has_no_instances() -> None:
    class Nothing(nn.Module):
        pass

    for abstract in (Nothing, nn.Module):
        with pytest.raises(TypeError, match="__call__"):
            abstract()


def test_what_is_set_to_a_module_later_is_tracked() -> None:
    model = MLP()
    model.up = None  # type: ignore[assignment]
    assert list(model.state_dict()) == ["gate.weight", "down.weight"]
    model.up = Linear(5, 10)
    assert set(model.state_dict()) == set(values())


def test_what_is_deleted_or_set_to_none_is_gone() -> None:
    model = MLP()
    del model.up
    assert list(model.state_dict()) == ["gate.weight", "down.weight"]
    model.gate = None  # type: ignore[assignment]
    assert list(model.state_dict()) == ["down.weight"]  # instead of keeping the stale child


def test_named_modules_are_prefixes() -> None:
    model = MLP()
    assert [name for name, _ in model.named_modules()] == ["", "up.", "gate.", "down."]


def test_a_module_is_replaced_in_place() -> None:
    model, other = MLP(), Linear(5, 10)
    assert model.replace_module("gate", other) is None
    assert model.gate is other
    stack = nn.Sequential(Linear(5, 5), nn.Sequential(Linear(5, 5)))
    stack.replace_module("1.0", other)
    assert stack[1][0] is stack.sublayers["1"].sublayers["0"] is other
    with pytest.raises(KeyError, match=r"'2'.*'1\.0'"):
        stack.replace_module("2", other)


@pytest.mark.long
def test_modules_are_copied_and_pickled_with_what_they_share() -> None:
    for copied in (copy.deepcopy(Tied()), pickle.loads(pickle.dumps(Tied()))):  # noqa: S301
        assert list(copied.state_dict()) == ["emb.weight"]
        assert copied.head.weight is copied.emb.weight
    model = nn.Sequential(MLP(), MLP())
    model.load_state_dict({f"{i}.{n}": v for i in range(2) for n, v in values(i).items()})
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        x = np.ones((2, 5), np.float32)
        np.testing.assert_array_equal(run(copied, x), run(model, x))
        assert copied[0].up.weight is not model[0].up.weight


def test_repr_counts_layers_and_weights() -> None:
    assert repr(MLP()) == "MLP(3 layers, 0 weights)"
    assert repr(Linear(5, 10)) == "Linear(0 layers, 1 weights)"


# shared and tied weights


class Tied(nn.Module):
    def __init__(self) -> None:
        self.emb = Linear(4, 6)
        self.head = Linear(4, 6)
        self.head.set_shared_weight("weight", self.emb.weight)

    def __call__(self, x: Any) -> Any:
        return self.emb(x) + self.head(x)


def test_a_shared_weight_is_its_owners() -> None:
    model = Tied()
    assert list(model.state_dict()) == list(model.raw_state_dict()) == ["emb.weight"]
    assert model.head.weight is model.emb.weight
    assert list(model.head.layer_weights) == ["weight"]
    weight = np.ones((6, 4), np.float32)
    with pytest.raises(ValueError, match=r"head\.weight"):
        model.load_state_dict({"emb.weight": weight, "head.weight": weight})
    model.load_state_dict({"emb.weight": weight})
    np.testing.assert_array_equal(run(model, np.ones((1, 4), np.float32)), np.full((1, 6), 8))


def test_a_weight_shared_with_the_parent_is_skipped() -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            self.a = Linear(2, 2)
            self.set_shared_weight("w", self.a.weight)
            self.set_shared_weight("orphan", Weight("other", DType.float32, (2,), CPU))

        def __call__(self, x: Any) -> Any:
            return x

    # instead of "weight" and "orphan" leaking into the state
    assert list(Parent().state_dict()) == ["a.weight"]


def test_a_weight_under_two_attributes_has_both_names() -> None:
    model = MLP()
    model.gate.weight = model.up.weight
    state = values()
    assert list(model.state_dict()) == [*state]
    assert model.up.weight.name == "gate.weight"
    with pytest.raises(ValueError, match=r"gate\.weight.*missing"):
        model.load_state_dict(
            {"up.weight": state["up.weight"], "down.weight": state["down.weight"]}
        )
    with pytest.raises(ValueError, match="differ"):  # instead of taking the last
        model.load_state_dict(state)
    state["gate.weight"] = state["up.weight"]
    model.load_state_dict(state)
    x = np.ones((2, 5), np.float32)
    np.testing.assert_allclose(run(model, x), mlp(state, x), rtol=1e-4, atol=1e-5)


def test_a_module_under_two_attributes_has_the_first_path() -> None:
    model = MLP()
    model.gate = model.up
    assert list(model.state_dict()) == ["up.weight", "down.weight"]
    with pytest.raises(ValueError, match=r"gate\.weight"):
        model.load_state_dict(values())


# graphs


def test_weights_of_one_name_are_an_error() -> None:
    weight = Weight("w", DType.float32, (2,), CPU)
    with Graph("g", input_types=[kind(2)]) as graph:
        first = graph.add_weight(weight)
        assert graph.add_weight(weight).shape == first.shape
        with pytest.raises(ValueError, match="w"):
            graph.add_weight(Weight("w", DType.float32, (2,), CPU))


def test_compiled_models_check_their_arguments() -> None:
    model = MLP()
    model.load_state_dict(values())
    compiled = model.compile(kind("n", 5))
    for wrong in (np.ones((2, 6)), np.ones((5,))):
        with pytest.raises(ValueError, match="5"):
            compiled(wrong.astype(np.float32))
    with pytest.raises(ValueError, match="float"):
        compiled(np.ones((2, 5)))
    with pytest.raises((TypeError, ValueError)):
        compiled(np.ones((2, 5), np.float32), np.ones((2, 5), np.float32))
    for batch in (0, 1, 7):
        x = np.ones((batch, 5), np.float32)
        np.testing.assert_allclose(compiled(x).to_numpy(), mlp(values(), x), rtol=1e-4, atol=1e-5)


def test_a_session_says_which_devices_a_module_may_use() -> None:
    model = MLP()
    model.load_state_dict(values())
    x = np.ones((2, 5), np.float32)
    compiled = model.compile(kind("n", 5), session=InferenceSession())
    np.testing.assert_allclose(compiled(x).to_numpy(), mlp(values(), x), rtol=1e-4, atol=1e-5)
    model.to(DeviceRef.CPU(1))
    with pytest.raises(ValueError, match=r"uses cpu:1; the session has cpu:0"):
        model.compile(
            TensorType(DType.float32, ["n", 5], DeviceRef.CPU(1)), session=InferenceSession()
        )


def test_shapes_are_checked_while_tracing() -> None:
    with pytest.raises(ValueError, match=r"(?s)matmul.*7.*5|matmul.*5.*7"):
        Graph("g", MLP(), input_types=[kind("n", 7)])


def test_values_of_another_shape_are_never_executed() -> None:
    # instead of reading past the array
    with pytest.raises(ValueError, match=r"up\.weight"):
        MLP().compile(kind("n", 5), weights={**values(), "up.weight": np.ones((1, 1), np.float32)})
    with pytest.raises(KeyError, match=r"up\.weight"):
        MLP().compile(kind("n", 5), weights={})


def test_an_input_of_a_wider_type_than_the_weights() -> None:
    """Accepted, and the product is of the wider type."""
    model = Linear(5, 3)
    weights = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    model.load_state_dict({"weight": weights})
    wide = kind("n", 5, dtype=DType.float64)
    assert Graph("g", model, [wide]).outputs[0].type == kind("n", 3, dtype=DType.float64)
    x = np.random.default_rng(1).normal(size=(2, 5))
    compiled = model.compile(wide, session=InferenceSession())
    result = np.from_dlpack(compiled(Buffer.from_numpy(x)))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, x @ weights.T.astype(np.float64), rtol=1e-14)


def test_a_product_that_does_not_fit_is_found_while_tracing() -> None:
    with pytest.raises(ValueError, match=r"(linear|matmul)\(float32\[n, 6\], float32\[.*\]"):
        Graph("g", MLP(), [kind("n", 6)])
