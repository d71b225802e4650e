"""Tensor expressions as launches: every thread in its place, no launch without blocks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from maxtool.compiler.cuda.binaries import (
    GeneratedModule,
    compile_apart,
    device_code,
    device_source,
)
from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.cuda.resources import read_resources
from maxtool.compiler.cuda.schedule import schedule_all
from maxtool.compiler.kernels.cuda.cuda_passes import register
from tests import simt

TARGET = cuda_target("cuda:sm_80,sm_90")


def size(value: int) -> Any:
    return tirx.IntImm("int64", value)


def placeholders() -> tuple[Any, Any, Any, Any]:
    rows, columns = te.var("rows", "int64"), te.var("columns", "int64")
    x = te.placeholder((rows, columns), name="x")
    return x, te.placeholder((size(7), columns), name="w"), rows, columns


def transposed() -> Any:
    x, _, rows, columns = placeholders()
    return te.create_prim_func([x, te.compute((columns, rows), lambda i, j: x[j, i], name="y")])


def inlined() -> Any:
    x, *_ = placeholders()
    more = te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="more")
    return te.create_prim_func([x, te.compute(x.shape, lambda i, j: more[i, j] * 2.0, name="y")])


def product(*, biased: bool) -> Any:
    x, w, rows, columns = placeholders()
    k = te.reduce_axis((size(0), columns), name="k")
    dot = te.compute((rows, size(7)), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="dot")
    if not biased:
        return te.create_prim_func([x, w, dot])
    return te.create_prim_func([x, w, te.compute(dot.shape, lambda i, j: dot[i, j] + 1.0)])


def scalar() -> Any:
    x = te.placeholder((), name="x")
    return te.create_prim_func([x, te.compute((), lambda: x() * 2.0, name="y")])


def two_results() -> Any:
    x, *_ = placeholders()
    double = te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="double")
    triple = te.compute(x.shape, lambda i, j: x[i, j] * 3.0, name="triple")
    return te.create_prim_func([x, double, triple])


FUNCTIONS = {
    "transposed": transposed(),
    "inlined": inlined(),
    "product": product(biased=False),
    "biased": product(biased=True),
    "scalar": scalar(),
    "two_results": two_results(),
}


def module(names: Any = FUNCTIONS) -> Any:
    functions = {name: FUNCTIONS[name].with_attr("global_symbol", name) for name in names}
    return schedule_all(tvm.IRModule(functions))


# What NumPy gives for the same.
EXPECTED: dict[str, Callable[..., Any]] = {
    "transposed": lambda x: x.T,
    "inlined": lambda x: (x + np.float32(1.0)) * np.float32(2.0),
    "product": lambda x, w: x @ w.T,
    "biased": lambda x, w: x @ w.T + np.float32(1.0),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("shape", [(5, 3), (1, 256), (37, 19), (0, 4), (3, 0)])
def test_every_element_is_numpys(name: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    operands = [rng.integers(-8, 8, shape).astype(np.float32)]
    if name in ("product", "biased"):
        operands.append(rng.integers(-8, 8, (7, shape[1])).astype(np.float32))
    expected = EXPECTED[name](*operands)
    out = np.full(expected.shape, np.nan, np.float32)
    simt.run(module([name])[name], *operands, out)
    np.testing.assert_array_equal(out, expected)


def test_functions_with_a_scalar_and_with_two_results() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    twice, thrice = np.empty_like(x), np.empty_like(x)
    simt.run(module(["two_results"])["two_results"], x, twice, thrice)
    np.testing.assert_array_equal((twice, thrice), (x * 2, x * 3))
    one, out = np.array(21, np.float32), np.empty((), np.float32)
    simt.run(module(["scalar"])["scalar"], one, out)
    assert out == 42


@pytest.fixture(scope="module")
def compiled() -> GeneratedModule:
    return compile_apart(module(), TARGET.tvm, tir_pipeline=register())


def test_they_compile_without_local_memory(compiled: GeneratedModule) -> None:
    for code in device_code(compiled, TARGET):
        result = read_resources(code.log)
        kernels = {f"{name}_kernel" for name in FUNCTIONS} | {"two_results_kernel_1"}
        assert result.keys() == kernels
        assert not any(one.stack or one.spills for one in result.values())


def test_what_is_known_on_the_way_costs_no_memory(compiled: GeneratedModule) -> None:
    source = device_source(compiled)
    arrays = re.findall(r"alignas\(64\) float (\w+)\[(\d+)\]", source)
    assert arrays and {count for _, count in arrays} == {"1"}
    assert "__shared__" not in source and "more" not in source


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "scalar"])
def test_a_launch_has_a_block_even_if_there_is_nothing_to_do(name: str) -> None:
    script = module([name])[name].script()
    launches = re.findall(r'launch_thread\("blockIdx.x", (.*)\)', script)
    assert launches and all(extent.startswith("T.max(") for extent in launches)


def test_sums_of_nothing_are_zero() -> None:
    script = module(["product"])["product"].script()
    zeroed, added = script.index("= T.float32(0.0)"), script.index("for ax0 in range(columns)")
    assert zeroed < added


def test_what_is_scheduled_already_is_left_alone() -> None:
    once = module()
    twice = schedule_all(once)
    tvm.ir.assert_structural_equal(once, twice)
