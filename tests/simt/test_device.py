"""Device functions run from what a driver's launch gives: sizes, addresses, numbers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import tvm

from tests.simt.device import DeviceKernel, device_kernels
from tests.simt.faults import BadLaunch, OutOfBounds
from tests.simt.test_kernels import rms_norm

ROWS, DIM = 5, 128


@pytest.fixture
def kernel() -> DeviceKernel:
    (kernel,) = device_kernels(tvm.IRModule({"rms": rms_norm(DIM)})).values()
    assert kernel.name == "rms_kernel"
    return kernel


def _launch(kernel: DeviceKernel, arrays: dict[str, np.ndarray], rows: int) -> None:
    values: list[ctypes.c_uint64 | ctypes.c_int64] = []
    for param in kernel.function.params:
        array = arrays.get(param.name.removesuffix("_ptr"))
        values.append(ctypes.c_int64(ROWS) if array is None else ctypes.c_uint64(array.ctypes.data))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    spans = [(array.ctypes.data, array.nbytes) for array in arrays.values()]
    kernel.launch(
        (rows, 1, 1),
        (128, 1, 1),
        0,
        kernel.arguments(ctypes.addressof(pointers)),
        lambda address: next(span for span in spans if 0 <= address - span[0] < span[1]),
    )


def test_a_launch_from_kernel_params(kernel: DeviceKernel) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, DIM), dtype="f4")
    arrays = {"x": x, "weight": np.full(DIM, 2, "f2"), "out": np.zeros_like(x)}
    _launch(kernel, arrays, ROWS)
    expected = 2 * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(arrays["out"], expected, rtol=1e-5)


def test_a_launch_that_does_not_fit_the_kernel(kernel: DeviceKernel) -> None:
    x = np.zeros((ROWS, DIM), "f4")
    arrays = {"x": x, "weight": np.ones(DIM, "f2"), "out": np.zeros_like(x)}
    with pytest.raises(BadLaunch, match="rms_kernel: launched with"):
        _launch(kernel, arrays, ROWS + 1)
    with pytest.raises(OutOfBounds, match="element 512 of out_ptr"):
        _launch(kernel, arrays | {"out": np.zeros((ROWS - 1, DIM), "f4")}, ROWS)
