"""A GPU as what runs a model."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from .consistency import SAMPLED
from .cuda_code import choose_code, given_code
from .cuda_decoding import CudaDecoder
from .cuda_driver import find_gpu
from .cuda_runtime import STREAM, TO_DEVICE, TO_HOST, Cuda
from .cuda_upload import upload
from .errors import DoesNotFit, MachineLacks, RunError, last_line
from .host import CPU, POOLED, check_machine
from .machine import Compiled
from .manifest import Manifest
from .memory import Array, State, nbytes_of
from .specs import DTYPES

CUDA = 2  # DLDeviceType
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


class CudaGpu:
    """A GPU: weights and state are in its memory, inputs and outputs are copied.

    Attributes:
        gpu: Which it is.
        cuda: NVIDIA's runtime library for it.

    Args:
        manifest: Of the model.
        index: The number of the GPU.

    Raises:
        BadUsage: If there is no GPU of this number.
        MachineLacks: If there is no driver, no CUDA runtime or no GPU, or the model has no code for
            it, or was compiled for machines with another processor.
    """

    def __init__(self, manifest: Manifest, index: int) -> None:
        self.gpu = find_gpu(index)
        self._code = choose_code(manifest, self.gpu)
        check_machine(manifest.target.get("host") or {})
        self.cuda = Cuda(index)
        self.vm = (CUDA, index, POOLED, CPU, 0, POOLED)
        self._inputs: dict[str, Any] = {}

    def loading(self) -> AbstractContextManager[None]:
        """TVM is given the machine code for this GPU."""
        return given_code(self._code)

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

        place: AbstractContextManager[object] = tvm_ffi.use_raw_stream(
            tvm_ffi.device("cuda", self.gpu.index), stream.value or 0
        )
        return place

    def decoder(self, compiled: Compiled, manifest: Manifest, state: State) -> CudaDecoder | None:
        """What continues a text without the host, if the model was compiled with that."""
        if manifest.context is None or not {*SAMPLED} <= manifest.entries.keys():
            return None
        return CudaDecoder(self, compiled, state, manifest.context)

    def weights(self, manifest: Manifest, progress: Callable[[float], None]) -> list[Any]:
        """The weights, copied to the GPU; ``progress`` is told the share that is there.

        Raises:
            MachineLacks: If they are more than the memory that is free.
        """
        with self.running():
            needed = sum(spec.nbytes() for spec in manifest.weights)
            free = self._free_bytes(needed)
            if needed > free:
                what = f"{self.gpu} has {free / GIB:.1f} GiB of free memory"
                raise MachineLacks(f"{what}; the weights of the model are {needed / GIB:.1f} GiB")
            tensors = [self.empty(spec.sizes({}), spec.dtype) for spec in manifest.weights]
            upload(self.cuda, manifest, [tensor.data_ptr() for tensor in tensors], progress)
        return tensors

    def empty(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of the GPU with whatever its memory holds.

        Raises:
            MachineLacks: If there is not enough memory.
        """
        import tvm_ffi

        allocate = tvm_ffi.get_global_func(ALLOCATE)
        kind, device = tvm_ffi.dtype(str(DTYPES[dtype])), tvm_ffi.device("cuda", self.gpu.index)
        needed = math.prod(shape) * DTYPES[dtype].itemsize
        free = self._free_bytes(needed)
        try:
            return allocate(tvm_ffi.Shape(tuple(shape)), kind, device, None)
        except RuntimeError:
            what = f"{self.gpu} has not enough free memory for {needed / GIB:.2f} GiB"
            raise MachineLacks(f"{what} more: {free / GIB:.2f} GiB are free") from None

    def _free_bytes(self, needed: int) -> int:
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
        """What tensors hold, once everything before is done."""
        with self.running():
            found = [np.empty(tuple(one.shape), str(one.dtype)) for one in tensors]
            for tensor, array in zip(tensors, found, strict=True):
                self.cuda.copy(array.ctypes.data, tensor.data_ptr(), array.nbytes, TO_HOST)
            self.cuda.wait()
        return found

    def refused(self, name: str, said: str) -> RunError:
        """What to raise when compiled code does not take a call."""
        if known := next((text for key, text in FAILURES.items() if key in said), None):
            return MachineLacks(f"{self.gpu} cannot run {name}: {known}")
        if line := next((line for line in said.splitlines() if "CUDA" in line), None):
            return RunError(f"{name} fails on {self.gpu}: {line.strip()}")
        return DoesNotFit(f"the compiled {name} refused the call: {last_line(said)}")
