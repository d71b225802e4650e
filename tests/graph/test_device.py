"""Devices: named anywhere, made only where they are."""

from __future__ import annotations

import copy
import ctypes
import pickle
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from maxtool import driver
from maxtool.driver import CPU, Accelerator, Device, accelerator_count
from maxtool.dtype import DType
from maxtool.errors import MachineLacks, MissingDevice
from maxtool.graph import DeviceRef, Tensor, TensorType, device, gpus


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the function that asks CUDA's driver; None where it cannot be loaded."""

    def say(answer: str | None) -> None:
        accelerator_count.cache_clear()
        for holder in (device, gpus):
            monkeypatch.setattr(holder, "has_driver", lambda: answer is not None)
        run = lambda *_, **__: SimpleNamespace(stdout=answer, returncode=0)  # noqa: E731
        monkeypatch.setattr(subprocess, "run", run)

    yield say
    accelerator_count.cache_clear()


def test_names_as_the_documents_print_them() -> None:
    assert repr(CPU()) == "Device(type=cpu,id=0)"
    assert (str(CPU()), str(CPU(1))) == ("CPU()", "CPU(id=1)")
    assert repr(DeviceRef.CPU()) == str(DeviceRef.CPU()) == "cpu:0"
    assert repr(DeviceRef.GPU(3)) == "gpu:3"


def test_a_name_equals_its_device() -> None:
    assert CPU() == DeviceRef.CPU() == CPU(0)
    assert len({CPU(), DeviceRef.CPU(), CPU(1), DeviceRef.CPU(1)}) == 2
    assert CPU(1) != CPU() != DeviceRef.GPU()
    assert CPU() != "cpu:0"
    assert isinstance(CPU(), Device)
    assert not isinstance(DeviceRef.CPU(), Device)


def test_from_a_device_and_back() -> None:
    assert type(DeviceRef.from_device(CPU(2))) is DeviceRef
    assert DeviceRef.from_device(CPU(2)) == CPU(2)
    assert type(DeviceRef.CPU(2).to_device()) is CPU
    assert DeviceRef.CPU(2).to_device().id == 2


def test_kinds() -> None:
    assert CPU().is_cpu() and not CPU().is_gpu()
    assert DeviceRef.GPU().is_gpu() and not DeviceRef.GPU().is_cpu()
    assert CPU().label == "cpu" and CPU().is_host


@pytest.mark.parametrize(("kind", "number"), [("tpu", 0), ("cpu", -1)])
def test_what_is_no_device(kind: str, number: int) -> None:
    with pytest.raises(ValueError, match=kind):
        DeviceRef(kind, number)


def test_types_take_both_and_nothing_else() -> None:
    named = TensorType(DType.float32, [2], DeviceRef.CPU())
    assert named == TensorType(DType.float32, [2], device=CPU()) == TensorType(DType.float32, [2])
    assert named != TensorType(DType.float32, [2], CPU(1))
    with pytest.raises(TypeError, match="a device is a Device or a DeviceRef"):
        TensorType(DType.float32, [2], "cpu")  # type: ignore[arg-type]


def test_they_are_copied_and_pickled() -> None:
    for one in (CPU(1), DeviceRef.GPU(1)):
        assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))  # noqa: S301


def test_no_driver(cuda: Any) -> None:
    cuda(None)
    assert accelerator_count() == 0
    with pytest.raises(MissingDevice, match=r"no gpu:0 here.*libcuda.*cannot be loaded") as caught:
        Accelerator()
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, MachineLacks)
    with pytest.raises(ValueError, match="gpu:1"):
        DeviceRef.GPU(1).to_device()


def test_a_driver_without_a_device(cuda: Any) -> None:
    cuda("")
    with pytest.raises(MissingDevice, match="finds no device"):
        Accelerator()


def test_devices_there_are(cuda: Any) -> None:
    cuda("9\n0\n" * 2)
    assert accelerator_count() == 2
    assert Accelerator(1) == DeviceRef.GPU(1)
    assert (repr(Accelerator()), str(Accelerator())) == (
        "Device(type=gpu,id=0)",
        "Accelerator(id=0)",
    )
    with pytest.raises(MissingDevice, match="finds 2"):
        Accelerator(2)


@pytest.mark.parametrize("answer", ["9\n", "9\nabc\n"])
def test_a_driver_that_says_something_else_counts_as_none(cuda: Any, answer: str) -> None:
    cuda(answer)
    assert accelerator_count() == 0


def test_a_driver_that_crashes_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator_count.cache_clear()
    monkeypatch.setattr(gpus, "has_driver", lambda: True)
    monkeypatch.setattr(gpus, "_ASK", "import os; os.abort()")
    assert accelerator_count() == 0
    accelerator_count.cache_clear()


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator_count.cache_clear()
    assert accelerator_count() >= 0
    accelerator_count.cache_clear()

    def fail(_: str) -> None:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", fail)
    assert accelerator_count() == 0
    accelerator_count.cache_clear()


def test_arrays_of_the_driver() -> None:
    assert driver.Buffer is driver.Tensor is Tensor
    for array in (np.zeros(2), Tensor([1.0])):
        assert isinstance(array, driver.DLPackArray)
    assert not isinstance([1.0], driver.DLPackArray)
