"""A GPU as what runs a model."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from .cuda_code import choose_code, given_code
from .cuda_decoding import CudaDecoder
from .cuda_driver import find_gpu
from .cuda_memory import GIB, CudaMemory
from .cuda_upload import upload
from .errors import MachineLacks
from .host import CPU, POOLED, check_machine
from .manifest import Manifest
from .processor import Compiled, Progress, State
from .text_entries import SAMPLED

CUDA = 2  # DLDeviceType


class CudaGpu(CudaMemory):
    """A GPU: weights and state are in its memory, inputs and outputs are copied."""

    def __init__(self, manifest: Manifest, index: int) -> None:
        gpu = find_gpu(index)
        self._code = choose_code(manifest, gpu)
        check_machine(manifest.target.get("host") or {})
        super().__init__(gpu)
        self.vm = (CUDA, index, POOLED, CPU, 0, POOLED)

    def loading(self) -> AbstractContextManager[None]:
        """TVM is given the machine code for this GPU."""
        return given_code(self._code)

    def decoder(self, compiled: Compiled, manifest: Manifest, state: State) -> CudaDecoder | None:
        """Return a decoder that needs no host, if the model was compiled with one."""
        if manifest.context is None or not {*SAMPLED} <= manifest.entries.keys():
            return None
        return CudaDecoder(self, compiled, state, manifest.context)

    def weights(self, manifest: Manifest, progress: Progress) -> list[Any]:
        """The weights, copied to the GPU."""
        with self.running():
            needed = sum(spec.nbytes() for spec in manifest.weights)
            free = self.free_bytes(needed)
            if needed > free:
                what = f"{self.gpu} has {free / GIB:.1f} GiB of free memory"
                raise MachineLacks(f"{what}; the weights of the model are {needed / GIB:.1f} GiB")
            tensors = [self.empty(spec.sizes({}), spec.dtype) for spec in manifest.weights]
            upload(self.cuda, manifest, [tensor.data_ptr() for tensor in tensors], progress)
        return tensors
