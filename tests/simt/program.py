"""A lowered PrimFunc as something to call with NumPy arrays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from tests.simt.compiled import View
from tests.simt.copies import Copies
from tests.simt.dtypes import Array, split
from tests.simt.faults import Aliased, BadLaunch, KernelFault
from tests.simt.flat_memory import FlatMemory
from tests.simt.scope import Chunk, Scope
from tests.simt.statements import Region, Statements

TAGS = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
# What every GPU since sm_30 takes: CUDA C++ Programming Guide, "Compute Capabilities".
LIMITS = dict(zip(TAGS, (2**31 - 1, 65535, 65535, 1024, 1024, 64), strict=True))
THREADS = 1024
STATIC_SHARED = 48 << 10
# Of sm_90: the most that one block may have.
SHARED_MEMORY = 227 << 10
# Threads that run at once: more of them make fewer steps of Python, and fill the caches.
LANES = 1 << 13


class Program:
    """A lowered PrimFunc to be called with arrays, compiled once to closures.

    Args:
        function: After :func:`tests.simt.lowering.lower`, or the like: flat buffers, no blocks.
        shared_memory: Bytes of shared memory that a block may have.
    """

    def __init__(self, function: Any, *, shared_memory: int = SHARED_MEMORY) -> None:
        self.function = function
        self.name = str(function.attrs["global_symbol"])
        self.shared_memory = shared_memory
        self._statements = Statements(self._launch)
        self._usage = self._statements.usage
        try:
            self._body = self._statements.compile(function.body)
        except KernelFault as fault:
            fault.kernel = self.name
            raise

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
        scope = Scope(None, None, 1, self._statements.expressions.dependents)
        try:
            with np.errstate(all="ignore"):
                self._bind(scope, arguments, updated)
                self._body(scope)
        except KernelFault as fault:
            fault.kernel = fault.kernel or self.name
            raise

    def forget_outputs(self, arguments: Sequence[Any]) -> None:
        """Fill what it writes with NaN, or -1: what it leaves unwritten shows in what follows."""
        for param, argument in zip(self.function.params, arguments, strict=True):
            if isinstance(argument, np.ndarray) and self._usage.is_written(hash(param)):
                argument.reshape(-1).view(np.uint8).fill(0xFF)

    def _bind(self, scope: Scope, arguments: Sequence[Any], updated: Collection[int]) -> None:
        params = list(self.function.params)
        if len(params) != len(arguments):
            raise TypeError(f"{self.name} takes {len(params)} arguments, not {len(arguments)}")
        arrays: list[tuple[Any, Array]] = []
        for param, argument in zip(params, arguments, strict=True):
            if isinstance(argument, np.ndarray):
                arrays.append((param, argument))
                _bind_shape(scope, param, argument)
            else:
                scope.bind(hash(param), argument)
        self._require_shapes(scope, arrays)
        self._require_apart(arrays)
        known = {hash(params[position]) for position in updated}
        for param, array in arrays:
            self._bind_memory(scope, param, array, updated=hash(param) in known)

    def _require_shapes(self, scope: Scope, arrays: Sequence[tuple[Any, Array]]) -> None:
        for param, array in arrays:
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

    def _require_apart(self, arrays: Sequence[tuple[Any, Array]]) -> None:
        """Require that written arrays overlap no other: CUDA C++ says ``__restrict__``."""
        spans = [
            (param, array.ctypes.data, array.ctypes.data + array.nbytes)
            for param, array in arrays
            if array.nbytes
        ]
        for (one, start, end), (other, its_start, its_end) in combinations(spans, 2):
            written = any(self._usage.is_written(hash(param)) for param in (one, other))
            if written and start < its_end and its_start < end:
                raise Aliased(f"{one.name} and {other.name} are one memory")

    def _bind_memory(self, scope: Scope, param: Any, array: Array, *, updated: bool) -> None:
        key, (dtype, _) = hash(param), split(str(param.ty.dtype))
        data = array.reshape(-1).view(np.uint8)
        unit, writes = self._usage.unit(key), self._usage.is_written(key)
        memory = FlatMemory(
            str(param.name),
            data,
            unit,
            extent=len(data),
            written=np.zeros(-(-len(data) // unit), np.bool_) if writes and not updated else None,
            tracked=writes,
        )
        scope.bind(key, View(memory, dtype))

    def _launch(self, region: Region, extents: dict[str, Any], host: Scope) -> None:
        """Run a kernel for all its blocks."""
        sizes = {tag: int(extents.get(tag, 1)) for tag in TAGS}
        self._require_limits(sizes, region)
        x, y, z, *threads = (sizes[tag] for tag in TAGS)
        grid, block = (x, y, z), (threads[0], threads[1], threads[2])
        for value in host.values.values():
            if isinstance(value, View) and isinstance(value.memory, FlatMemory):
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


def _bind_shape(scope: Scope, param: Any, array: Array) -> None:
    if len(param.ty.shape) != array.ndim:
        raise TypeError(f"{param.name} has {len(param.ty.shape)} dimensions, not {array.ndim}")
    for size, inputs in zip(param.ty.shape, array.shape, strict=True):
        if type(size).__name__ == "Var" and hash(size) not in scope.values:
            scope.bind(hash(size), inputs)
