"""A lowered PrimFunc as something to call with NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from math import prod
from typing import Any

import numpy as np

from tests.simt.copies import Copies
from tests.simt.dtypes import Array, split
from tests.simt.expressions import View
from tests.simt.faults import BadLaunch, KernelFault
from tests.simt.flat_memory import FlatMemory
from tests.simt.memory import Pointer
from tests.simt.scope import Chunk, Scope
from tests.simt.statements import Region, Statements
from tests.simt.usage import Usage

TAGS = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
# What every GPU since sm_30 takes: CUDA C++ Programming Guide, "Compute Capabilities".
LIMITS = dict(zip(TAGS, (2**31 - 1, 65535, 65535, 1024, 1024, 64), strict=True))
THREADS = 1024
STATIC_SHARED = 48 << 10
# Of sm_90: the most that one block may have.
SHARED_MEMORY = 227 << 10
# Threads that run at once: more of them make fewer steps of Python, and fill the caches.
LANES = 1 << 13


class Interpreter:
    """A PrimFunc, compiled once to closures.

    Args:
        function: After :func:`tests.simt.lowering.lower`, or the like: flat buffers, no blocks.
        shared_memory: Bytes of shared memory that a block may have.
    """

    def __init__(self, function: Any, *, shared_memory: int = SHARED_MEMORY) -> None:
        self.function = function
        self.name = str(function.attrs["global_symbol"])
        self.shared_memory = shared_memory
        self._statements = Statements(self._launch)
        try:
            self._body = self._statements.compile(function.body)
        except KernelFault as fault:
            fault.kernel = self.name
            raise

    @property
    def usage(self) -> Usage:
        """What the function does with each of its parameters."""
        return self._statements.usage

    def host_scope(self) -> Scope:
        """Where the parameters are bound."""
        return Scope(None, None, 1, self._statements.expressions.dependents)

    def run(self, scope: Scope) -> None:
        """Run it with the parameters that are bound."""
        with np.errstate(all="ignore"):
            self._body(scope)

    def _launch(self, region: Region, extents: dict[str, Any], host: Scope) -> None:
        self.on_launch(region, {tag: int(extents.get(tag, 1)) for tag in TAGS}, host)

    def on_launch(self, region: Region, extents: dict[str, int], host: Scope) -> None:
        """Run a kernel for all its blocks."""
        self._require_limits(extents, region)
        x, y, z, *threads = (extents[tag] for tag in TAGS)
        grid, block = (x, y, z), (threads[0], threads[1], threads[2])
        for value in host.values.values():
            if isinstance(value, View | Pointer) and isinstance(value.memory, FlatMemory):
                value.memory.begin_launch()
        at_once = max(1, LANES // prod(block))
        for first in range(0, prod(grid), at_once):
            blocks = min(at_once, prod(grid) - first)
            chunk = Chunk(first, blocks, prod(block), block, grid)
            chunk.copies = Copies(np.zeros(len(chunk.everyone), np.int64))
            scope = Scope(chunk, None, blocks * prod(block), host.dependents)
            scope.values.update(host.values)
            region.body(scope)

    def _require_limits(self, sizes: dict[str, int], region: Region) -> None:
        wrong = [
            f"{tag} is {size}, from 1 to {LIMITS[tag]} are possible"
            for tag, size in sizes.items()
            if not 1 <= size <= LIMITS[tag]
        ]
        threads = prod(sizes[tag] for tag in TAGS if tag.startswith("thread"))
        if threads > THREADS:
            wrong.append(f"{threads} threads in a block, {THREADS} are possible")
        static, total = region.shared["shared"], sum(region.shared.values())
        if static > STATIC_SHARED:
            wrong.append(f"{static} bytes of static shared memory, {STATIC_SHARED} are possible")
        if total > self.shared_memory:
            wrong.append(f"{total} bytes of shared memory, {self.shared_memory} are possible")
        if wrong:
            raise BadLaunch("; ".join(wrong))


class Program(Interpreter):
    """A lowered PrimFunc to be called with arrays."""

    def __call__(self, *arguments: Any, updated: Collection[int] = ()) -> None:
        """Run it.

        Args:
            arguments: A contiguous array for each buffer, bfloat16 as such or as uint16; a number
                for each scalar. What the program writes is written there.
            updated: Positions of the arrays that the program both reads and writes. Any other
                array that it writes holds nothing to read before.

        Raises:
            KernelFault: If it does what a GPU would not do, or would not notice.
        """
        scope = self.host_scope()
        try:
            self._bind(scope, arguments, updated)
            self.run(scope)
        except KernelFault as fault:
            fault.kernel = fault.kernel or self.name
            raise

    def _bind(self, scope: Scope, arguments: Sequence[Any], updated: Collection[int]) -> None:
        params = list(self.function.params)
        if len(params) != len(arguments):
            raise TypeError(f"{self.name} takes {len(params)} arguments, not {len(arguments)}")
        arrays: list[tuple[int, Any, Array]] = []
        for position, (param, argument) in enumerate(zip(params, arguments, strict=True)):
            if isinstance(argument, np.ndarray):
                arrays.append((position, param, argument))
                _bind_shape(scope, param, argument)
            else:
                scope.bind(hash(param), argument)
        self._require_shapes(scope, arrays)
        for group in _overlapping(arrays):
            self._bind_memory(scope, group, updated)

    def _require_shapes(self, scope: Scope, arrays: Sequence[tuple[int, Any, Array]]) -> None:
        for _, param, array in arrays:
            compiled = [self._statements.expressions.compile(size) for size in param.ty.shape]
            shape = tuple(int(size(scope)) for size in compiled)
            dtype, _ = split(str(param.ty.dtype))
            if shape != array.shape or dtype.itemsize != array.dtype.itemsize:
                raise TypeError(
                    f"{self.name}: {param.name} is {dtype}{list(shape)}, "
                    f"given {array.dtype}{list(array.shape)}"
                )
            if not array.flags.c_contiguous:
                raise TypeError(f"{self.name}: {param.name} is not contiguous")

    def _bind_memory(
        self, scope: Scope, group: Sequence[tuple[int, Any, Array]], updated: Collection[int]
    ) -> None:
        """Arrays that lie in each other share what is known of their bytes."""
        usage = self.usage
        start = min(array.ctypes.data for _, _, array in group)
        data = _bytes_of([array for _, _, array in group])
        keys = [hash(param) for _, param, _ in group]
        unit = min(usage.unit(key) for key in keys)
        written = [usage.is_written(key) for key in keys]
        fresh = all(
            not held or position in updated
            for held, (position, _, _) in zip(written, group, strict=True)
        )
        known = None if fresh else np.zeros(-(-len(data) // unit), np.bool_)
        memory = FlatMemory(
            str(group[0][1].name), data, unit, extent=len(data), written=known,
            tracked=any(written),
        )  # fmt: skip
        for _, param, array in group:
            dtype, _ = split(str(param.ty.dtype))
            offset = (array.ctypes.data - start) // dtype.itemsize
            scope.bind(hash(param), View(memory, dtype, offset))


def _bind_shape(scope: Scope, param: Any, array: Array) -> None:
    if len(param.ty.shape) != array.ndim:
        raise TypeError(f"{param.name} has {len(param.ty.shape)} dimensions, not {array.ndim}")
    for size, given in zip(param.ty.shape, array.shape, strict=True):
        if type(size).__name__ == "Var" and hash(size) not in scope.values:
            scope.bind(hash(size), given)


def _overlapping(
    arrays: Sequence[tuple[int, Any, Array]],
) -> list[list[tuple[int, Any, Array]]]:
    """Arrays by the stretches of memory that they cover together."""
    groups: list[list[tuple[int, Any, Array]]] = []
    end = -1
    for entry in sorted(arrays, key=lambda entry: entry[2].ctypes.data):
        array = entry[2]
        if groups and array.ctypes.data < end:
            groups[-1].append(entry)
        else:
            groups.append([entry])
        end = max(end, array.ctypes.data + array.nbytes)
    return groups


def _bytes_of(arrays: Sequence[Array]) -> Array:
    """The bytes that overlapping arrays cover, as one array."""
    widest = max(arrays, key=lambda array: array.nbytes)
    start = min(array.ctypes.data for array in arrays)
    end = max(array.ctypes.data + array.nbytes for array in arrays)
    if (widest.ctypes.data, widest.nbytes) == (start, end - start):
        return widest.reshape(-1).view(np.uint8)
    held = (ctypes.c_uint8 * (end - start)).from_address(start)  # the caller holds the arrays
    return np.ctypeslib.as_array(held)
