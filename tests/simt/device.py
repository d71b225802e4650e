"""Device functions by name, as a CUDA driver is asked to launch them.

A stub of the driver that a loader is tested with can hand its launches to :class:`DeviceKernel`::

    kernels = device_kernels(module)            # as the compiler lowers the PrimFuncs of `module`
    kernel = kernels["rms_norm_kernel"]
    # cuLaunchKernel(function, gridDimX, ..., sharedMemBytes, stream, kernelParams, extra):
    kernel.launch((gx, gy, gz), (bx, by, bz), shared, kernel.arguments(kernelParams), allocation)

where ``allocation(address)`` gives the (start, bytes) of the device memory that holds an address.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.simt.dtypes import split
from tests.simt.faults import BadLaunch, KernelFault, OutOfBounds
from tests.simt.flat_memory import FlatMemory
from tests.simt.lowering import device_functions
from tests.simt.memory import Pointer
from tests.simt.program import TAGS, Interpreter
from tests.simt.scope import Scope
from tests.simt.statements import Region

Dim3 = tuple[int, int, int]
BYTE = np.dtype(np.uint8)


class DeviceKernel(Interpreter):
    """A device function: what the compiler makes of one launch of a PrimFunc.

    Args:
        function: A PrimFunc after SplitHostDevice, whose pointers are parameters.
        shared_memory: Bytes of shared memory that a block may have.
    """

    def launch(
        self,
        grid: Dim3,
        block: Dim3,
        shared: int,
        arguments: Sequence[int | float],
        allocation: Callable[[int], tuple[int, int]],
    ) -> None:
        """Run it on memory of this process.

        Args:
            grid: Blocks along x, y and z.
            block: Threads along x, y and z.
            shared: Bytes of dynamic shared memory that the launch asks for.
            arguments: Addresses and numbers, in the order of the parameters.
            allocation: Start and size of the allocation that an address lies in.

        Raises:
            KernelFault: If the launch does not fit the kernel, or as :class:`Program` does.
        """
        self._given = dict(zip(TAGS, (*grid, *block), strict=True))
        self._shared = shared
        scope = self.host_scope()
        try:
            for param, argument in zip(self.function.params, arguments, strict=True):
                scope.bind(hash(param), self._bound(param, argument, allocation))
            self.run(scope)
        except KernelFault as fault:
            fault.kernel = fault.kernel or self.name
            raise

    def arguments(self, parameters: int) -> list[int | float]:
        """What ``kernelParams`` of ``cuLaunchKernel`` points at, by the types of the parameters."""
        count = len(self.function.params)
        pointers = (ctypes.c_void_p * count).from_address(parameters)
        return [
            _read(param, pointer or 0)
            for param, pointer in zip(self.function.params, pointers, strict=True)
        ]

    def _bound(
        self, param: Any, argument: Any, allocation: Callable[[int], tuple[int, int]]
    ) -> Any:
        if not is_pointer(param):
            return argument
        start, size = allocation(argument)
        if not start <= argument < start + max(size, 1):
            raise OutOfBounds(f"{param.name} is {argument:#x}, which is in no allocation")
        held = (ctypes.c_uint8 * size).from_address(start)
        usage = self.usage
        memory = FlatMemory(
            str(param.name),
            np.ctypeslib.as_array(held),
            usage.unit(hash(param)),
            extent=size,
            tracked=usage.is_written(hash(param)),
        )
        return Pointer(memory, argument - start, BYTE)

    def on_launch(self, region: Region, extents: dict[str, int], host: Scope) -> None:
        if extents != self._given:
            raise BadLaunch(f"launched with {self._given}, compiled for {extents}")
        needed = region.shared["shared.dyn"]
        if needed > self._shared:
            raise BadLaunch(f"{self._shared} bytes of dynamic shared memory, {needed} are needed")
        super().on_launch(region, extents, host)


def device_kernels(module: Any) -> dict[str, DeviceKernel]:
    """Of each kernel in the PrimFuncs of a module, the device function by the name it has."""
    return {name: DeviceKernel(function) for name, function in device_functions(module).items()}


def is_pointer(param: Any) -> bool:
    """Whether a parameter is an address."""
    return type(param.ty).__name__ == "PointerType"


def _read(param: Any, address: int) -> int | float:
    if is_pointer(param):
        return int(ctypes.c_uint64.from_address(address).value)
    dtype, _ = split(str(param.ty.dtype))
    held = (ctypes.c_uint8 * dtype.itemsize).from_address(address)
    number: int | float = np.ctypeslib.as_array(held).view(dtype)[0].item()
    return number
