"""Tensors in the memory of a GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from .cuda_driver import Gpu
from .cuda_runtime import STREAM, TO_DEVICE, TO_HOST, Cuda
from .errors import DoesNotFit, MachineLacks, RunError, last_line
from .memory import Array, nbytes_of
from .specs import DTYPES

# Functions of TVM's runtime.
ALLOCATE, CLEAR = "runtime.TVMTensorAllocWithScope", "vm.builtin.memory_manager.clear"
GIB = 1 << 30
# What the driver, or TVM for it, says of machine code and of the GPU, and what to do.
FAILURES = {
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the PTX in this artifact: "
    "install a newer one, or compile the model with --target cuda:sm_XX for this GPU",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the machine code in this artifact is not for this GPU: "
    "compile the model for it with --target cuda:sm_XX",
    "CUDA_ERROR_INVALID_PTX": "the driver cannot translate the PTX in this artifact",
    "allowed dynamic shared memory": "a block has less shared memory here than on the GPUs that "
    "the model was compiled for: compile it with --target cuda:sm_XX for this one, too",
    "CUDA_ERROR_OUT_OF_MEMORY": "there is not enough free memory",
    "out of memory": "there is not enough free memory",
}


class CudaMemory:
    """Memory of a GPU: tensors are made in it, copied to it and from it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.cuda = gpu, Cuda(gpu.index)
        self._inputs: dict[str, Any] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The GPU is the current one of this thread, with its default stream."""
        before = self.cuda.select()
        try:
            with self.on_stream(STREAM):
                yield
        finally:
            self.cuda.restore(before)

    def on_stream(self, stream: ctypes.c_void_p) -> AbstractContextManager[object]:
        """Compiled code asks for work on this stream."""
        import tvm_ffi

        context: AbstractContextManager[object] = tvm_ffi.use_raw_stream(
            tvm_ffi.device("cuda", self.gpu.index), stream.value or 0
        )
        return context

    def empty(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of the GPU with whatever its memory holds."""
        import tvm_ffi

        allocate = tvm_ffi.get_global_func(ALLOCATE)
        kind, device = tvm_ffi.dtype(str(DTYPES[dtype])), tvm_ffi.device("cuda", self.gpu.index)
        needed = math.prod(shape) * DTYPES[dtype].itemsize
        free = self.free_bytes(needed)
        try:
            return allocate(tvm_ffi.Shape(tuple(shape)), kind, device, None)
        except RuntimeError:
            what = f"{self.gpu} has not enough free memory for {needed / GIB:.2f} GiB"
            raise MachineLacks(f"{what} more: {free / GIB:.2f} GiB are free") from None

    def free_bytes(self, needed: int) -> int:
        """Memory that is free; TVM's pool gives back what it keeps if that is less than needed.

        The pool keeps what calls of every size needed, until it finds no memory itself.
        """
        import tvm_ffi

        free = self.cuda.free_bytes()
        if free >= needed:
            return free
        tvm_ffi.get_global_func(CLEAR)()
        return self.cuda.free_bytes()

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of zeros."""
        with self.running():
            tensor = self.empty(shape, dtype)
        self.clear(tensor)
        return tensor

    def clear(self, tensor: Any) -> None:  # noqa: ANN401
        """Make all of a tensor zero again."""
        with self.running():
            self.cuda.zero(tensor.data_ptr(), nbytes_of(tensor))

    def tensor(self, name: str, array: Array) -> Any:  # noqa: ANN401
        """An array copied to the GPU: into the memory of the last input of the name, if it fits."""
        found = self._inputs.get(name)
        if found is None or tuple(found.shape) != array.shape or str(found.dtype) != array.dtype:
            found = self._inputs[name] = self.empty(array.shape, str(array.dtype))
        self.write(found, array)
        return found

    def write(self, tensor: Any, array: Array) -> None:  # noqa: ANN401
        """Copy an array, which is contiguous, into a tensor of its size."""
        self.cuda.copy(tensor.data_ptr(), array.ctypes.data, array.nbytes, TO_DEVICE)

    def arrays(self, tensors: Sequence[Any]) -> list[Array]:
        """Read tensors, after all previous work is done."""
        with self.running():
            found = [np.empty(tuple(one.shape), str(one.dtype)) for one in tensors]
            for tensor, array in zip(tensors, found, strict=True):
                self.cuda.copy(array.ctypes.data, tensor.data_ptr(), array.nbytes, TO_HOST)
            self.cuda.wait()
        return found

    def refused(self, name: str, said: str) -> RunError:
        """Return the error for a call that compiled code refuses."""
        if known := next((text for key, text in FAILURES.items() if key in said), None):
            return MachineLacks(f"{self.gpu} cannot run {name}: {known}")
        if line := next((line for line in said.splitlines() if "CUDA" in line), None):
            return RunError(f"{name} fails on {self.gpu}: {line.strip()}")
        return DoesNotFit(f"the compiled {name} refused the call: {last_line(said)}")
