"""Calls of compiled kernels, inside the emulated system: ``calls.py``, with requests on stdin.

A request is a line: a library, and files that hold an array each, which the library's function
``kernel`` is called with. The arrays are written back, and the line is answered.
"""

from __future__ import annotations

import ctypes
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi


@cache
def kernel(library: str) -> Any:
    """The function of a library."""
    return tvm_ffi.load_module(library)["kernel"]


def compact(array: np.ndarray) -> np.ndarray:
    """The same elements with TVM's strides: where a size is 0, NumPy has others."""
    strides = np.multiply.accumulate([array.itemsize, *array.shape[:0:-1]])[::-1]
    return np.lib.stride_tricks.as_strided(array, strides=strides)


def call(library: str, files: list[str]) -> None:
    """Call a kernel with arrays that it reads and writes."""
    arrays = [np.load(file) for file in files]
    kernel(library)(*(tvm_ffi.from_dlpack(compact(array)) for array in arrays))
    for file, array in zip(files, arrays, strict=True):
        np.save(file, array)


def main() -> None:
    """Load TVM's runtime, then answer requests until there are no more."""
    tvm_ffi.registry._SKIP_UNKNOWN_OBJECTS = True
    runtime = Path(tvm_ffi.__file__).parents[1] / "tvm/lib/libtvm_runtime.so"
    ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)
    for line in sys.stdin:
        try:
            call(**json.loads(line))
            answer = "done"
        except Exception as error:
            answer = repr(error)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
