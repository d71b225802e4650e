"""NVIDIA's driver, and the GPUs that it knows."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import BadUsage, MachineLacks

LIBRARY = "libcuda.so.1"
CUDA = 13000  # the release that TVM's runtime is built for, as cuDriverGetVersion counts
OLDEST_DRIVER = "580"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine."""

    index: int  # from 0, among those that this process may use
    name: str
    capability: tuple[int, int]  # for compute, such as (9, 0)
    nbytes: int  # all of its memory
    shared_memory: int  # bytes that a block may have

    def __str__(self) -> str:
        major, minor = self.capability
        return f"GPU {self.index} ({self.name}, compute capability {major}.{minor})"


def find_gpu(index: int) -> Gpu:
    """The GPU of this number."""
    gpus = find_gpus()
    if index >= len(gpus):
        listed = "; ".join(map(str, gpus))
        raise BadUsage(f"there is no device cuda:{index}", hint=f"this machine has {listed}")
    return gpus[index]


def find_gpus() -> list[Gpu]:
    """The GPUs of this machine; ``MachineLacks`` where none can run CUDA 13."""
    driver = _open_driver()
    count = _number(driver, driver.cuDeviceGetCount)
    if not count:
        raise MachineLacks(_no_gpu())
    return [_describe(driver, index) for index in range(count)]


def _open_driver() -> ctypes.CDLL:
    """The driver's library, initialised, and new enough."""
    try:
        driver = ctypes.CDLL(LIBRARY, ctypes.RTLD_GLOBAL)
    except OSError:
        raise MachineLacks(
            f"there is no NVIDIA driver here ({LIBRARY} cannot be loaded), and the model was "
            "compiled for GPUs",
            hint="install the driver; for a machine without a GPU compile with --target cpu",
        ) from None
    version = ctypes.c_int()
    known = driver.cuDriverGetVersion(ctypes.byref(version)) == 0
    if known and version.value < CUDA:
        release = f"{version.value // 1000}.{version.value % 1000 // 10}"
        raise MachineLacks(
            f"the NVIDIA driver is for CUDA {release}, and models need CUDA 13",
            hint=f"install driver {OLDEST_DRIVER} or newer",
        )
    if failure := driver.cuInit(0):
        raise MachineLacks(
            _no_gpu()
            if failure == NO_DEVICE
            else f"the NVIDIA driver does not start: {_said(driver, failure)}"
        )
    return driver


def _no_gpu() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hint = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r:.40})"
    return f"the NVIDIA driver finds no GPU{hint}"


def _describe(driver: ctypes.CDLL, index: int) -> Gpu:
    device = _number(driver, driver.cuDeviceGet, index)
    name, nbytes = ctypes.create_string_buffer(256), ctypes.c_size_t()
    _check(driver, driver.cuDeviceGetName(name, len(name), device))
    _check(driver, driver.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device))
    major, minor, shared = (
        _number(driver, driver.cuDeviceGetAttribute, attribute, device)
        for attribute in (MAJOR, MINOR, SHARED)
    )
    called = name.value.decode(errors="replace")
    return Gpu(index, called, (major, minor), nbytes.value, shared)


def _number(driver: ctypes.CDLL, function: Callable[..., Any], *arguments: int) -> int:
    """Return the number that a function of the driver writes to its first argument."""
    number = ctypes.c_int()
    _check(driver, function(ctypes.byref(number), *arguments))
    return number.value


def _check(driver: ctypes.CDLL, failure: int) -> None:
    if failure:
        raise MachineLacks(f"the NVIDIA driver fails: {_said(driver, failure)}")


def _said(driver: ctypes.CDLL, failure: int) -> str:
    text = ctypes.c_char_p()
    driver.cuGetErrorString(failure, ctypes.byref(text))
    return f"error {failure}, {(text.value or b'unknown').decode(errors='replace')}"
