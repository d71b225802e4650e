"""Tensors and graphs on accelerators, for which parts of the host stand in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from tvm_ffi import structural_equal

from maxtool import nn
from maxtool.architectures import Decoder, build
from maxtool.compiler.cuda.binaries import device_source
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.multi_device import kind_of
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.placement import Placement
from maxtool.compiler.targets import parse_target
from maxtool.driver import CPU, Accelerator
from maxtool.dtype import DType
from maxtool.engine import InferenceSession
from maxtool.errors import MissingDevice
from maxtool.graph import (
    BufferType,
    DeviceRef,
    Graph,
    ShardingStrategy,
    Tensor,
    TensorType,
    Weight,
    executor,
    ops,
)
from maxtool.graph.ops.flow import show
from tests.architectures.decoders import CONFIG
from tests.effort import thinned

Array = np.ndarray[Any, Any]
F32 = DType.float32
GPUS = [DeviceRef.GPU(0), DeviceRef.GPU(1)]

pytestmark = pytest.mark.usefixtures("accelerators")


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def place(tensor: Tensor) -> str:
    """Return TVM's name of the elements' device: gpu:0 is its cpu:1, and so on."""
    resident: Any = tensor.device_array
    return str(resident.tensor.device)


# data


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int64", "bool", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_data_goes_there_and_back(kind: str, shape: tuple[int, ...]) -> None:
    dtype = DType(kind).to_numpy()
    data = np.asarray(np.random.default_rng(0).integers(0, 2, shape)).astype(dtype)
    there = Tensor(data).to(Accelerator(1))
    assert (there.device, there.dtype, there.shape) == (Accelerator(1), DType(kind), shape)
    assert place(there) == "cpu:2"
    back = there.to(CPU())
    assert (back.device, back.device_array) == (CPU(), None)
    np.testing.assert_array_equal(back.to_numpy(), data)
    other = there.to(GPUS[0])
    assert place(other) == "cpu:1"
    np.testing.assert_array_equal(other.to_numpy(), data)


def test_a_copy_is_a_copy() -> None:
    data = random(3)
    before = data.copy()
    there = Tensor(data).to(GPUS[0])
    data[:] = 0
    there.to_numpy()[:] = 0
    np.testing.assert_array_equal(there.to_numpy(), before)
    copied = copy.deepcopy(there)
    assert place(copied) == "cpu:1"
    np.testing.assert_array_equal(copied.to_numpy(), before)


def test_data_for_an_accelerator_waits_until_it_is_needed_there() -> None:
    waits = Tensor(np.ones(3, np.float32), device=DeviceRef.GPU(0))
    assert waits.device_array is None
    assert place(waits + 1.0) == place(waits) == "cpu:1"
    with pytest.raises(MissingDevice, match="no gpu:7 here"):
        Tensor(np.ones(3, np.float32), device=DeviceRef.GPU(7)) + 1.0


def test_others_can_read_it_by_dlpack() -> None:
    data = random(2, 3)
    there = Tensor(data).to(GPUS[0])
    assert there.__dlpack_device__() == (1, 1)
    np.testing.assert_array_equal(np.from_dlpack(there), data)  # type: ignore[arg-type]


# operations


EAGER: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "a chain": (lambda x: ops.maximum(x * 2.0, x), lambda x: np.maximum(x * 2, x)),
    "a view": (lambda x: x.T, lambda x: x.T),
    "a slice": (lambda x: x[1:, 0], lambda x: x[1:, 0]),
    "a product": (lambda x: x @ x.T, lambda x: x @ x.T),
    "of nothing": (lambda x: x[:0], lambda x: x[:0]),
    "numbers": (lambda x: x + ops.cast(ops.cumsum(x, axis=0), F32), lambda x: x + x.cumsum(0)),
}


@pytest.mark.parametrize("case", EAGER)
def test_operations_run_where_their_operands_are(case: str) -> None:
    ours, numpy = EAGER[case]
    for rows in (3, 4, 5):  # the second program is for any number of rows
        x = random(rows, 4)
        result = ours(Tensor(x).to(GPUS[1]))
        assert result.device == GPUS[1]
        np.testing.assert_allclose(result.to_numpy(), numpy(x), rtol=1e-5, atol=1e-6)


def test_operands_on_two_devices_are_named() -> None:
    x, y = Tensor(random(2, 3)), Tensor(random(2, 3)).to(GPUS[0])
    with pytest.raises(ValueError, match=r"add\(float32\[2, 3\], float32\[2, 3\] on gpu:0\)"):
        x + y
    with pytest.raises(ValueError, match="operands on gpu:1 and gpu:0; move them to one"):
        y.to(GPUS[1]) @ y.T


# graphs


def two_places(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute on every device; the numbers are constants, weights and sizes too."""
    table = np.arange(3, dtype=np.float32)
    w = Weight("w", F32, [4, 3], GPUS[1])
    first = ops.silu(x.to(GPUS[0]) * 2.0) + table
    second = ops.linear(first.to(GPUS[1]), w) + ops.sum(first.to(GPUS[1]) * table)
    home = second.to(CPU()) + np.ones(4, np.float32)
    return home, first, second.to(GPUS[0])


def two_places_in_numpy(x: Array, w: Array) -> tuple[Array, Array, Array]:
    first = 2 * x / (1 + np.exp(-2 * x)) + np.arange(3)
    second = first @ w.T + (first * np.arange(3)).sum(-1, keepdims=True)
    return second + 1, first, second


@pytest.mark.parametrize("rows", thinned([1, 5], 5))
def test_a_graph_on_three_devices(rows: int) -> None:
    graph = Graph("main", two_places, [TensorType(F32, ["n", 3])])
    x, w = random(rows, 3), random(4, 3)
    results = executor.find_executor().compile(graph, {"w": w})(Tensor(x))
    for result, expected in zip(results, two_places_in_numpy(x, w), strict=True):
        np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-4, atol=1e-5)
    assert [result.device for result in results] == [CPU(), GPUS[0], GPUS[0]]
    assert [place(result) for result in results[1:]] == ["cpu:1", "cpu:1"]


def test_control_flow_over_devices() -> None:
    """A branch on another device, a loop on a third, and how many places there are on the last."""

    def flowing(x: Tensor) -> tuple[Tensor, Tensor]:
        there = x.to(GPUS[0])
        big = (there * there).sum([0, 1])[0, 0] > 10.0
        elsewhere = GPUS[1]
        kind = TensorType(F32, x.shape, elsewhere)
        (built,) = ops.cond(
            big, [kind], lambda: (there * 0.5).to(elsewhere), lambda: there.to(elsewhere) * 3.0
        )
        (last,) = ops.while_loop(
            built, lambda y: y.sum([0, 1])[0, 0] < 100.0, lambda y: (y + built) * 2.0
        )
        return last, ops.nonzero(last > 50.0, "many")

    run = executor.find_executor().compile(Graph("main", flowing, [TensorType(F32, ["n", 3])]), {})
    for scale in (0.5, 4.0):
        x = np.abs(random(2, 3)).astype(np.float32) * np.float32(scale)
        result = x * (0.5 if (x**2).sum() > 10 else 3)
        last = result
        while last.sum() < 100:
            last = (last + result) * 2
        results, places = run(Tensor(x))
        assert results.device == places.device == GPUS[1]
        np.testing.assert_allclose(results.to_numpy(), last, rtol=1e-5)
        np.testing.assert_array_equal(places.to_numpy(), np.argwhere(last > 50))


def test_memory_of_one_device_never_serves_another() -> None:
    """Plan memory for known sizes: the temporary values of each device are as large."""

    def steps(x: Tensor) -> Tensor:
        for device in (*GPUS, CPU(), *GPUS, CPU()):
            x = x.to(device)
            for _ in range(3):
                x = ops.exp(ops.cumsum(x, axis=0) * 0.1)
        return x

    x = random(4, 3)
    expected = x
    for _ in range(18):
        expected = np.exp(expected.cumsum(0) * np.float32(0.1))
    run = executor.find_executor().compile(Graph("main", steps, [TensorType(F32, [4, 3])]), {})
    np.testing.assert_allclose(run(Tensor(x))[0].to_numpy(), expected, rtol=1e-3)


def test_arguments_are_brought_where_they_are_read() -> None:
    kinds = [TensorType(F32, ["n"], GPUS[0]), TensorType(F32, ["n"])]
    session = InferenceSession(devices=[Accelerator(0)])
    model = session.load(Graph("main", lambda x, y: (x + 1.0, y + 1.0), kinds))
    x = random(3)
    for inputs in (x, Tensor(x), Tensor(x).to(GPUS[0]), Tensor(x).to(GPUS[1])):
        there, here = model(inputs, inputs)
        assert (place(there), here.device) == ("cpu:1", CPU())
        for result in (there, here):
            np.testing.assert_array_equal(result.to_numpy(), x + 1)


def written(buffer_type: BufferType) -> Callable[..., Any]:
    x, position = (
        TensorType(F32, [1, 1, 2, 4], buffer_type.device),
        TensorType(DType.int32, [1], buffer_type.device),
    )
    write = Graph("main", ops.cache_write_value, [buffer_type, x, position])
    return executor.find_executor().compile(write, {})


def test_a_buffer_is_written_where_it_is() -> None:
    write = written(BufferType(F32, [1, 2, 8, 4], GPUS[0]))
    cache = Tensor(np.zeros((1, 2, 8, 4), np.float32)).to(GPUS[0])
    x = random(1, 1, 2, 4)
    write(cache, Tensor(x), Tensor(np.array([3], np.int32)))
    expected = np.zeros((1, 2, 8, 4), np.float32)
    expected[0, :, 3] = x[0, 0]
    np.testing.assert_array_equal(cache.to_numpy(), expected)
    for lost in (Tensor(np.zeros((1, 2, 8, 4), np.float32)), cache.to(GPUS[1])):
        with pytest.raises(
            ValueError, match=rf"a buffer is on {lost.device.name}, and is written on gpu:0"
        ):
            write(lost, Tensor(x), Tensor(np.array([3], np.int32)))


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def call(x: Tensor) -> Tensor:
        ops.print(x, "there")
        return x

    x = random(2)
    executor.find_executor().compile(Graph("main", call, [TensorType(F32, [2], GPUS[0])]), {})(
        Tensor(x)
    )
    printed = capsys.readouterr().out
    show("there", x)
    assert printed == capsys.readouterr().out


# what is compiled


def calls(module: Any, placement: Placement) -> list[tuple[str, set[str], str]]:
    """Return, for each call of a kernel, its function's target, and its operands' devices."""

    def name(kind: Any) -> str:
        places = zip(placement.vdevices, placement.devices, strict=True)
        return next(device.name for own, device in places if structural_equal(own, kind.vdevice))

    result = []
    for binding in (one for block in module["main"].body.blocks for one in block.bindings):
        call = binding.value
        if getattr(getattr(call, "op", None), "name", "") == "relax.call_tir":
            operands = {
                name(field.ty) for field in call.args[1].fields if hasattr(field.ty, "vdevice")
            }
            target = module[call.args[0]].attrs["target"]
            result.append((str(target), operands | {name(call.ty)}, name(call.ty)))
    return result


def lowered(graph: Graph, placement: Placement) -> Any:
    lowering = ModuleLowering(LoweringPlan([graph], placement))
    lowering.entry(graph)
    return lowering.module()


def three_places(x: Tensor) -> tuple[Tensor, Tensor]:
    there = ops.exp(x.to(GPUS[0]))
    return ops.cos(ops.log(there.to(GPUS[1])).to(CPU())), there[1:] + np.ones(3, np.float32)


@pytest.mark.parametrize("name", ["cpu:x86-64", "cuda:sm_90"])
def test_each_kernel_is_for_the_device_of_its_operands(name: str) -> None:
    host, other = parse_target("cpu"), parse_target(name)
    graph = Graph("main", three_places, [TensorType(F32, ["n", 3])])
    placement = Placement.of([graph], {"cpu": host, "gpu": other})
    actual = calls(lowered(graph, placement), placement)
    expected = {"cpu:0": host, "gpu:0": other, "gpu:1": other}
    for target, devices, device in actual:
        assert devices == {device}
        assert target == str(expected[device].tvm)
    assert {device for _, _, device in actual} == set(expected)


def test_one_module_holds_code_for_the_host_and_for_gpus() -> None:
    """Compiled where there is no GPU: every kernel of the GPUs is in the device code."""
    graph = Graph("main", three_places, [TensorType(F32, ["n", 3])])
    targets = {"cpu": parse_target("cpu"), "gpu": parse_target("cuda:sm_90")}
    placement = Placement.of([graph], targets)
    module = lowered(graph, placement)
    cuda = [str(name.name_hint) for name, one in module.functions.items() if kind_of(one) == "cuda"]
    source = device_source(compile_module(module, placement))
    assert len(cuda) > 1
    for name in cuda:
        assert f"{name}_kernel(" in source


def test_a_graph_on_one_gpu_is_compiled_as_any_other() -> None:
    kind = TensorType(F32, [4, 3], GPUS[1])
    graph = Graph("main", lambda x: ops.log(ops.log(x)), [kind])
    placement = Placement.of([graph], {"gpu": parse_target("cuda:sm_80")})
    assert placement.is_single
    source = device_source(compile_module(lowered(graph, placement), placement))
    assert "log_kernel(" in source


# layers


IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
PLACES: dict[str, tuple[tuple[DeviceRef, ...], Any]] = {
    "one": ((GPUS[1],), None),
    "rows on two": ((GPUS[0], GPUS[1]), ShardingStrategy.rowwise(2)),
    "layers on two": ((GPUS[0], GPUS[1]), ShardingStrategy.tensor_parallel(2)),
    "the host and one": ((CPU(), GPUS[0]), ShardingStrategy.tensor_parallel(2)),
}


def decoder() -> Decoder:
    model: Decoder = build("decoder", CONFIG | {"tie_word_embeddings": True, "qkv_bias": True})
    rng = np.random.default_rng(0)
    weights = model.raw_state_dict().items()
    model.load_state_dict(
        {name: rng.normal(size=one.shape.static()).astype(np.float32) for name, one in weights}
    )
    return model


@cache
def on_the_host() -> Array:
    """Return the decoder's results on the host."""
    return decoder().compile(TensorType(DType.int64, ["batch", "seq"]))(IDS).to_numpy()


@pytest.mark.sampled
@pytest.mark.parametrize("case", thinned(PLACES, "rows on two", "the host and one"))
def test_a_decoder_on_devices(case: str) -> None:
    """Call layers as subgraphs, with angles in tables that no state lists."""
    devices, strategy = PLACES[case]
    expected = on_the_host()
    model = decoder()
    model.to(*devices, sharding_strategy=strategy)
    kind = TensorType(DType.int64, ["batch", "seq"], devices[0])
    result = model.compile(kind)(IDS)
    assert result.device == devices[0]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-4, atol=1e-5 * scale)


def test_a_decoder_whose_tokens_are_elsewhere_says_so() -> None:
    model = decoder()
    model.to(GPUS[0])
    with pytest.raises(ValueError, match=r"embedding\(.*on gpu:0\): operands on cpu:0 and gpu:0"):
        model.compile(TensorType(DType.int64, ["batch", "seq"]))


def test_subgraphs_are_called_with_operands_on_their_devices() -> None:
    kind = TensorType(F32, ["n"], GPUS[0])
    callee = Graph("callee", lambda x: x + 1.0, [kind])
    with pytest.raises(
        ValueError, match=r"operand 0 of subgraph 'callee' is float32\[n\], expected"
    ):
        Graph("main", lambda x: ops.call(callee, x), [TensorType(F32, ["n"])])


WITH_NUMBERS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]] = {
    "places": (lambda x: x[[2, 0]], lambda x: x[[2, 0]]),
    "places in two dimensions": (lambda x: x[[2, 0], 1], lambda x: x[[2, 0], 1]),
    "a size": (lambda x: x * x.shape[0], lambda x: x * len(x)),
    "a deviation": (lambda x: ops.std(x, axis=0), lambda x: x.std(0, keepdims=True)),
    "repetitions": (
        lambda x: ops.repeat_interleave(x, [1, 0, 2], axis=1),
        lambda x: x.repeat([1, 0, 2], axis=1),
    ),
}


@pytest.mark.parametrize("case", WITH_NUMBERS)
def test_numbers_beside_a_tensor_are_where_it_is(case: str) -> None:
    ours, numpy = WITH_NUMBERS[case]
    x = random(4, 3)
    run = executor.find_executor().compile(
        Graph("main", ours, [TensorType(F32, ["n", 3], GPUS[0])]), {}
    )
    for result in (ours(Tensor(x).to(GPUS[0])), run(Tensor(x))[0]):
        assert result.device == GPUS[0]
        np.testing.assert_allclose(result.to_numpy(), numpy(x), rtol=1e-5, atol=1e-6)


def test_rotary_positions_there() -> None:
    layer = nn.RotaryEmbedding(8, 2, 100.0, 16)
    x = random(1, 5, 2, 4)
    expected = layer(Tensor(x)).to_numpy()
    kind = TensorType(F32, [1, "seq", 2, 4], GPUS[1])
    for result in (layer(Tensor(x).to(GPUS[1])), layer.compile(kind)(x)):
        assert result.device == GPUS[1]
        np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-5, atol=1e-6)
