"""The corners of eager modules, row by row as the reference's BEHAVIOUR.md lists them.

Where this package does something else on purpose, the test says "instead"; docs/api.md lists those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from maxtool.driver import CPU, Accelerator, accelerator_count
from maxtool.dtype import DType
from maxtool.experimental import functional as F  # noqa: N812
from maxtool.experimental.nn import Linear, Module, ModuleList, Sequential, module_dataclass
from maxtool.experimental.tensor import Tensor, TensorType, defaults
from maxtool.nn.module_v3 import Embedding


class Inner(Module[[Tensor], Tensor]):
    def __init__(self) -> None:
        self.a = Sequential(Linear(2, 2), Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


class Outer(Module[[Tensor], Tensor]):
    def __init__(self) -> None:
        self.b = Inner()
        self.w = Tensor.ones([2])

    def forward(self, x: Tensor) -> Tensor:
        return self.b(x) * self.w


def state_of(model: Module[..., Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.array(t.to_numpy()) for name, t in model.parameters}


def kind(*shape: int | str, dtype: DType = DType.float32) -> TensorType:
    return TensorType(dtype, shape, device=CPU())


# the tree


def test_own_parameters_come_before_those_of_children() -> None:
    assert [name for name, _ in Outer().parameters] == [
        "w", "b.a.0.weight", "b.a.0.bias", "b.a.1.weight", "b.a.1.bias",
    ]  # fmt: skip


def test_children_and_descendants() -> None:
    model = Outer()
    assert [name for name, _ in model.children] == ["b"]
    names = ["b", "b.a", "b.a.0", "b.a.1"]
    assert [name for name, _ in model.descendants] == names
    assert [name for name, _ in model.descendents] == names
    assert [name for name, _ in model.local_parameters] == ["w"]


class Plain(Module[[Tensor], Tensor]):
    """Modules and tensors in plain lists and dicts."""

    def __init__(self) -> None:
        self.ls = [Linear(2, 2), Tensor.ones([2])]
        self.by_name = {"a": {"b": Linear(2, 2, bias=False)}}

    def forward(self, x: Tensor) -> Tensor:
        return self.by_name["a"]["b"](self.ls[0](x) * self.ls[1])


@pytest.mark.long
def test_plain_lists_and_dicts_are_tracked() -> None:
    model = Plain()
    names = ["ls.1", "ls.0.weight", "ls.0.bias", "by_name.a.b.weight"]
    assert [name for name, _ in model.parameters] == names
    assert [name for name, _ in model.local_parameters] == ["ls.1"]
    assert not list(model.children)
    assert [name for name, _ in model.descendants] == ["ls.0", "by_name.a.b"]
    x = Tensor(np.ones((3, 2), np.float32))
    compiled = model.compile(kind("n", 2))
    np.testing.assert_allclose(compiled(x).to_numpy(), model(x).to_numpy(), rtol=1e-4, atol=1e-5)
    mapped = model.map_parameters(lambda _, t: t * 0)
    assert not any(value.any() for value in state_of(mapped).values())
    assert model.ls[1].to_numpy().all()
    model.load_state_dict(state_of(mapped))
    assert not model.ls[1].to_numpy().any()
    model.to(CPU(1))
    assert {t.device for _, t in model.parameters} == {CPU(1)}
    assert model.ls[0].device == CPU(1)


def test_slots_of_dataclasses_are_tracked() -> None:
    @module_dataclass(slots=True)
    class Slotted(Module[[Tensor], Tensor]):
        weight: Tensor
        inner: Linear
        absent: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.weight

    model = Slotted(Tensor.ones([2]), Linear(2, 2))
    assert [name for name, _ in model.parameters] == ["weight", "inner.weight", "inner.bias"]
    model.load_state_dict({name: np.zeros_like(value) for name, value in state_of(model).items()})
    assert not model.weight.to_numpy().any()
    assert not model(Tensor.ones([2])).to_numpy().any()


def test_a_cycle_is_walked_once() -> None:
    model = Outer()
    names = [name for name, _ in model.parameters]
    model.b.me = model
    assert [name for name, _ in model.parameters] == names  # instead of never ending, or an error


def test_lists_of_modules_are_lists() -> None:
    for result in (Sequential(Linear(2, 2)), ModuleList([Linear(2, 2)])):
        result.append(Linear(2, 3))
        result.insert(0, Linear(5, 2))
        assert [name for name, _ in result.children] == ["0", "1", "2"]
        result.pop()
        result.reverse()
        assert [tuple(t.shape) for name, t in result.parameters if "weight" in name] == [
            (2, 2),
            (2, 5),
        ]
        del result[0]
        assert isinstance(result, list)
        assert len(result[:1]) == 1
    with pytest.raises(NotImplementedError):
        ModuleList([Linear(2, 2)])(Tensor.ones([2]))
    x = Tensor.ones([2])
    np.testing.assert_array_equal(Sequential()(x).to_numpy(), x.to_numpy())


def test_forward_must_be_defined() -> None:
    with pytest.raises(NotImplementedError):
        Module()(Tensor.ones([2]))


# loading


def test_a_missing_name_is_a_key_error_strict_or_not() -> None:
    model = Linear(2, 3)
    for strict in (True, False):
        with pytest.raises(KeyError, match="bias"):
            model.load_state_dict({"weight": Tensor.zeros([3, 2])}, strict=strict)
    assert model.weight.to_numpy().any()


def test_an_unexpected_name_changes_nothing() -> None:
    model = Linear(2, 3)
    before, state = state_of(model), {"weight": Tensor.zeros([3, 2]), "bias": Tensor.zeros([3])}
    with pytest.raises(ValueError, match="other"):
        model.load_state_dict({**state, "other": Tensor.zeros([1])})
    np.testing.assert_array_equal(model.weight.to_numpy(), before["weight"])
    model.load_state_dict({**state, "other": Tensor.zeros([1])}, strict=False)
    assert not model.weight.to_numpy().any()


@pytest.mark.parametrize("bias", [np.zeros(4, np.float32), np.zeros(3, np.float16)])
def test_what_does_not_fit_changes_nothing(bias: Any) -> None:
    model = Linear(2, 3)
    before = state_of(model)
    with pytest.raises(ValueError, match="bias"):
        model.load_state_dict({"weight": np.zeros((3, 2), np.float32), "bias": bias})
    np.testing.assert_array_equal(model.weight.to_numpy(), before["weight"])


def test_a_frozen_dataclass_is_loaded() -> None:
    @module_dataclass(frozen=True)
    class Scale(Module[[Tensor], Tensor]):
        weight: Tensor

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    model = Scale(Tensor.ones([2]))
    model.load_state_dict({"weight": Tensor.zeros([2])})
    assert not model.weight.to_numpy().any()


def test_load_state_takes_both_kinds_of_lookup() -> None:
    model = Linear(2, 3)
    zeros = {"weight": Tensor.zeros([3, 2]), "bias": Tensor.zeros([3])}
    seen = []
    model.load_state(lambda name, old: seen.append((name, old.shape)) or zeros[name])
    assert seen == [("weight", [3, 2]), ("bias", [3])]
    model.load_state(lambda name: Tensor.ones(zeros[name].shape))
    assert model.weight.to_numpy().all()
    model.load_state(zeros.__getitem__)
    assert not model.weight.to_numpy().any()


def test_load_state_checks_and_changes_nothing_on_failure() -> None:
    model = Linear(2, 3)
    before = state_of(model)
    # instead of taking anything
    with pytest.raises(ValueError, match="bias"):
        model.load_state(lambda _: Tensor.zeros([3, 2]))
    with pytest.raises(KeyError):
        model.load_state({"weight": Tensor.zeros([3, 2])}.__getitem__)
    with pytest.raises(TypeError, match=r"^load_state takes a function of a name, not a list"):
        model.load_state([before])  # type: ignore[arg-type]
    for name, value in state_of(model).items():
        np.testing.assert_array_equal(value, before[name])


def test_arrays_are_kept_and_not_copied() -> None:
    model, weight = Linear(2, 3), np.zeros((3, 2), np.float32)
    model.load_state_dict({"weight": weight, "bias": np.zeros(3, np.float32)})
    weight[0] = 7
    np.testing.assert_array_equal(model.weight.to_numpy()[0], [7, 7])


# tied


def test_a_tied_tensor_has_both_names() -> None:
    model = Sequential(Linear(2, 2), Linear(2, 2))
    model[1].weight = model[0].weight
    names = [name for name, _ in model.parameters]
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias"]
    state = state_of(model)
    del state["1.weight"]
    with pytest.raises(KeyError, match=r"1\.weight"):
        model.load_state_dict(state)


def test_loading_a_tied_tensor_unties_it() -> None:
    model = Sequential(Linear(2, 2), Linear(2, 2))
    model[1].weight = model[0].weight
    model.load_state_dict(state_of(model) | {"0.weight": np.zeros((2, 2), np.float32)})
    assert model[1].weight.to_numpy().any()
    assert not model[0].weight.to_numpy().any()


def test_a_tied_module_has_both_names_and_one_value() -> None:
    layer = Linear(2, 2)
    model = Sequential(layer, layer)
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [name for name, _ in model.parameters] == names
    assert [name for name, _ in model.descendants] == ["0", "1"]
    state = state_of(model)
    model.load_state_dict(state)
    assert model[0] is model[1]
    with pytest.raises(KeyError, match=r"1\.bias"):
        model.load_state_dict({name: state[name] for name in names[:3]})
    before = state_of(model)["0.weight"]
    with pytest.raises(ValueError, match=r"1\.weight"):  # instead of taking the last
        model.load_state_dict(state | {"1.weight": state["0.weight"] * 2})
    np.testing.assert_array_equal(layer.weight.to_numpy(), before)
    seen: list[str] = []
    model.apply_to_parameters(lambda name, t: seen.append(name) or t)
    assert seen == names  # once for each name


def test_a_tied_module_is_compiled_right() -> None:
    layer = Linear(2, 2)
    model = Sequential(layer, layer)
    x = np.ones((3, 2), np.float32)
    w, b = layer.weight.to_numpy(), layer.bias.to_numpy()
    compiled = model.compile(kind("rows", 2))
    expected = (x @ w.T + b) @ w.T + b
    np.testing.assert_allclose(compiled(Tensor(x)).to_numpy(), expected, rtol=1e-4, atol=1e-5)
    mapped = model.map_parameters(lambda _, t: t)
    assert mapped[0] is mapped[1]


# apply and map


def test_apply_gives_qualified_names() -> None:
    model, seen = Sequential(Linear(2, 2), Linear(2, 2)), []
    assert model.apply_to_parameters(lambda name, t: seen.append(name) or t) is None
    assert seen == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model.apply_to_local_parameters(lambda name, t: seen.append(name) or t)
    assert len(seen) == 4


def test_apply_that_fails_changes_nothing() -> None:
    def half_way(name: str, t: Tensor) -> Tensor:
        if name == "bias":
            raise LookupError(name)
        return t * 0

    model = Linear(2, 3)
    before = state_of(model)
    with pytest.raises(LookupError):
        model.apply_to_parameters(half_way)
    np.testing.assert_array_equal(model.weight.to_numpy(), before["weight"])
    with pytest.raises((TypeError, ValueError)):  # instead of dropping the parameter
        model.apply_to_parameters(lambda *_: None)
    assert list(state_of(model)) == ["weight", "bias"]


def test_map_leaves_the_original_alone() -> None:
    model = Outer()
    model.extra = {"note": [1]}
    before = state_of(model)
    mapped = model.map_parameters(lambda _, t: t * 0)
    assert type(mapped) is Outer
    assert not any(value.any() for value in state_of(mapped).values())
    for name, value in state_of(model).items():
        np.testing.assert_array_equal(value, before[name])
    mapped.extra["note"].append(2)
    assert model.extra == {"note": [1]}


# devices


def test_to_moves_children_too() -> None:
    model = Outer()
    assert model.device == CPU()
    assert model.to(CPU(1)) is model
    assert (model.device, model.b.device, model.b.a[0].device) == (CPU(1),) * 3
    assert {t.device for _, t in model.parameters} == {CPU(1)}
    with pytest.raises(TypeError):
        model.to("cpu")


@pytest.mark.skipif(accelerator_count() > 0, reason="this machine has a GPU")
def test_there_is_no_accelerator() -> None:
    with pytest.raises(ValueError, match="gpu:0"):
        Accelerator()


def test_defaults() -> None:
    dtype, device = defaults()
    assert isinstance(dtype, DType)
    assert TensorType(dtype, [2], device=device).device == device


# layers


def test_linear() -> None:
    model = Linear(64, 256)
    assert model.weight.shape == [256, 64]
    weight = model.weight.to_numpy()
    assert abs(float(weight.mean())) < 0.05
    assert Linear(5, 10, bias=False).bias == 0
    assert [name for name, _ in Linear(5, 10, bias=False).parameters] == ["weight"]
    with pytest.raises(ValueError, match=r"linear\(float32\[3, 63\], float32\[256, 64\]"):
        model(Tensor.ones([3, 63]))


def test_embedding() -> None:
    with pytest.raises(TypeError):
        Embedding(10)
    with pytest.raises(TypeError):
        Embedding(10, dim=2, dims=[2])
    assert Embedding(10, dims=[])(Tensor.ones([4], dtype=DType.int64)).shape == [4]
    with pytest.raises((ValueError, IndexError), match="10"):
        Embedding(10, dim=2)(Tensor.constant([10], dtype=DType.int64))


def test_a_bias_may_be_given() -> None:
    bias = Tensor([1.0, 2.0, 3.0])
    model = Linear(2, 3, bias=bias)
    assert model.bias is bias
    x = np.ones((1, 2), np.float32)
    expected = x @ model.weight.to_numpy().T + [[1, 2, 3]]
    np.testing.assert_allclose(model(Tensor(x)).to_numpy(), expected, rtol=1e-5, atol=1e-5)
    assert Linear(2, 3, bias=0).bias == 0
    for wrong in (Tensor([1.0]), Tensor([1, 2, 3], DType.int32)):
        with pytest.raises(ValueError, match=r"the bias is .*, expected float32\[3\]"):
            Linear(2, 3, bias=wrong)
    with pytest.raises(TypeError, match="the bias is a Tensor, True or False, not 'no'"):
        Linear(2, 3, bias="no")  # type: ignore[arg-type]


def test_repr() -> None:
    assert repr(Linear(5, 10)) == "Linear(in_dim=Dim(5), out_dim=Dim(10))"
    assert repr(Linear(5, 10, bias=False)).count("bias=False") == 1
    assert repr(Embedding(1000, dim=128)) == "Embedding(vocab_size=Dim(1000), dim=Dim(128))"

    @module_dataclass
    class Pair(Module[[Tensor], Tensor]):
        first: Linear
        weight: Tensor
        scale: float = 1.0

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) * self.weight

    lines = repr(Pair(Linear(2, 2), Tensor.ones([2]))).splitlines()
    assert lines[0] == "Pair("
    assert lines[1].startswith("    first=Linear(in_dim=Dim(2), out_dim=Dim(2))")
    assert lines[2].startswith("    weight=Tensor(")
    assert lines[-1] == ")"
    assert "scale" not in repr(Pair(Linear(2, 2), Tensor.ones([2])))


def test_a_plain_dataclass_is_a_module_too() -> None:
    @dataclass
    class Plain(Module[[Tensor], Tensor]):
        weight: Tensor

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    assert [name for name, _ in Plain(Tensor.ones([2])).parameters] == ["weight"]


# compile


def test_a_size_that_contradicts_itself_is_said_once() -> None:
    class Same(Module[[Tensor], Tensor]):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x)

    with pytest.raises(ValueError, match=r"^argument 'x': expected 'n' to be 2 as in 'x', got 3$"):
        Same().compile(kind("n", "n"))(Tensor.ones([2, 3]))


def test_one_compiled_callable_serves_every_batch() -> None:
    model = Linear(2, 3)
    compiled = model.compile(kind("batch", 2))
    w, b = state_of(model).values()
    for batch in (0, 1, 3, 10):
        x = np.random.default_rng(batch).normal(size=(batch, 2)).astype(np.float32)
        np.testing.assert_allclose(
            compiled(Tensor(x)).to_numpy(), x @ w.T + b, rtol=1e-4, atol=1e-5
        )
    for wrong in (Tensor.ones([3, 4]), Tensor.ones([3]), Tensor.ones([3, 2], dtype=DType.float64)):
        with pytest.raises(ValueError, match="argument 'x': expected"):
            compiled(wrong)
    for count in (0, 2):
        with pytest.raises((TypeError, ValueError)):
            compiled(*[Tensor.ones([3, 2])] * count)


class Add(Module[[Tensor, Tensor], Any]):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        return x + y, {"product": x * y}


def test_a_symbol_has_one_size_in_a_call() -> None:
    compiled = Add().compile(kind("n"), kind("n"))
    total, named = compiled(Tensor.ones([3]), Tensor.ones([3]))
    np.testing.assert_array_equal(total.to_numpy(), [2, 2, 2])
    np.testing.assert_array_equal(named["product"].to_numpy(), [1, 1, 1])
    with pytest.raises(ValueError, match="n"):
        compiled(Tensor.ones([3]), Tensor.ones([4]))
    with pytest.raises(ValueError, match="4"):
        Add().compile(kind(3), kind(3))(Tensor.ones([4]), Tensor.ones([4]))


def test_the_number_of_types_is_that_of_forward() -> None:
    with pytest.raises(TypeError):
        Add().compile(kind("n"))


def test_shapes_are_checked_while_tracing() -> None:
    with pytest.raises(ValueError, match=r"linear\(float32\[n, 7\], float32\[3, 2\]"):
        Linear(2, 3).compile(kind("n", 7))


def test_no_branch_on_a_traced_value() -> None:
    class Branch(Module[[Tensor], Tensor]):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) if x[0] > 0 else x

    with pytest.raises(TypeError, match="tracing cannot take a branch"):
        Branch().compile(kind(2))


def test_weights_given_to_compile() -> None:
    model = Linear(2, 3)
    before = state_of(model)
    inputs = {"weight": np.ones((3, 2), np.float32), "bias": np.ones(3, np.float32)}
    compiled = model.compile(kind("n", 2), weights=inputs)
    np.testing.assert_array_equal(compiled(Tensor.ones([1, 2])).to_numpy(), [[3, 3, 3]])
    np.testing.assert_array_equal(model.weight.to_numpy(), before["weight"])
    with pytest.raises(KeyError, match="bias"):
        model.compile(kind("n", 2), weights={"weight": inputs["weight"]})
    with pytest.raises(ValueError, match="bias"):
        model.compile(kind("n", 2), weights={**inputs, "bias": np.ones(4, np.float32)})
    with pytest.raises(ValueError, match="other"):  # instead of ignoring it
        model.compile(kind("n", 2), weights={**inputs, "other": np.ones(4, np.float32)})


def test_loading_after_compiling_changes_nothing_compiled() -> None:
    model = Linear(2, 3)
    compiled = model.compile(kind("n", 2))
    before = compiled(Tensor.ones([1, 2])).to_numpy()
    model.load_state_dict({"weight": Tensor.zeros([3, 2]), "bias": Tensor.zeros([3])})
    np.testing.assert_array_equal(compiled(Tensor.ones([1, 2])).to_numpy(), before)
