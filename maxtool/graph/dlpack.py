"""Arrays by the DLPack protocol, of the types that NumPy's side of it lacks as well.

NumPy hands over, and takes, the bits as an unsigned integer; the type in the capsule is changed on
the way. A capsule is made for each exchange, so nobody else sees the change. The layout and the
codes are those of ``dlpack.h`` (https://github.com/dmlc/dlpack, version 1.2).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from maxtool.dtype import DType

Array = np.ndarray[Any, Any]

# DLDataTypeCode: unsigned integers, and what NumPy does not export or import.
UNSIGNED = 1
CODES = {
    DType.bfloat16: 4,
    DType.float8_e4m3fn: 10,
    DType.float8_e4m3fnuz: 11,
    DType.float8_e5m2: 12,
    DType.float8_e5m2fnuz: 13,
    DType.float8_e8m0fnu: 14,
}
DTYPES = {code: dtype for dtype, code in CODES.items()}

# DLDeviceType: the host's memory, and such as CUDA pins.
HOST = (1, 3)

# Where the code of the element type is: DLTensor begins with a pointer, a device and a rank.
CODE_OFFSET = 8 + 8 + 4
# By the capsule's name, where its DLTensor begins; before it, a version, two pointers and flags.
TENSOR_OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 8 + 8 + 8 + 8}


def export(array: Array, **options: Any) -> Any:  # noqa: ANN401 - a capsule
    """Return the result of an array's ``__dlpack__``."""
    dtype = DType.from_numpy(array.dtype)
    if dtype not in CODES:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**options)
    _code(capsule).value = CODES[dtype]
    return capsule


def load(producer: Any) -> Array:  # noqa: ANN401 - anything with the protocol
    """An array over the memory of something with ``__dlpack__`` that lies on the host.

    Raises:
        BufferError: If it lies elsewhere, or has a type that there is no ``DType`` of.
    """
    device_type, number = producer.__dlpack_device__()
    if int(device_type) not in HOST:
        raise BufferError(
            f"from_dlpack: the memory lies on device ({int(device_type)}, {number}); copy it"
        )
    try:
        return np.from_dlpack(producer)
    except (BufferError, RuntimeError, TypeError) as error:
        capsule = producer.__dlpack__()
        dtype = DTYPES.get(_code(capsule).value)
        if dtype is None:
            raise BufferError(f"from_dlpack: {error}") from error
    _code(capsule).value = UNSIGNED
    array: Array = np.from_dlpack(_Handed(capsule, producer.__dlpack_device__()))
    return array.view(dtype.to_numpy())


class _Handed:
    """A capsule as something that has the protocol."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:  # noqa: ANN401
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_options: Any) -> Any:  # noqa: ANN401
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def _code(capsule: Any) -> ctypes.c_uint8:  # noqa: ANN401
    """The element type's code in a capsule."""
    named = ctypes.pythonapi.PyCapsule_GetName
    named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = named(capsule)
    address = pointer(capsule, name) + TENSOR_OFFSETS[name] + CODE_OFFSET
    return ctypes.c_uint8.from_address(address)
