"""Elements moved: dimensions in another order, rows read and written by index."""

from __future__ import annotations

from collections.abc import Callable

from maxtool.compiler.kernels import element_types as e
from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend


def permute(backend: Backend, dtype: str, dims: tuple[int, ...]) -> b.PrimFunc:
    """Build the copy with its dimensions in another order.

    Parameters of the kernel: x of any sizes, y whose dimension i is dimension ``dims[i]`` of x,
    both of ``dtype``, as it is passed.
    """
    with b.kernel(f"permute_{'_'.join(map(str, dims))}_{dtype}") as kernel:
        sizes = [kernel.dim(f"size_{axis}") for axis in range(len(dims))]
        x = kernel.argument("x", sizes, dtype)
        moved = [sizes[dim] for dim in dims]
        y = kernel.argument("y", moved, dtype)
        move_elements(backend, x, y, moved, dims)
    return kernel.function


def move_elements(
    backend: Backend, x: b.Buffer, y: b.Buffer, moved: b.Indices, dims: tuple[int, ...]
) -> None:
    """Write y, of sizes ``moved``, whose dimension i is dimension ``dims[i]`` of x."""

    def row(*outer: b.Expr) -> Callable[[b.Expr], None]:
        def element(k: b.Expr) -> None:
            source = dict(zip(dims, (*outer, k), strict=True))
            b.store(y, x[tuple(source[axis] for axis in range(len(dims)))], (*outer, k))

        return element

    backend.each_element(moved, row)


def gather_rows(backend: Backend, dtype: str, places: str) -> b.PrimFunc:
    """Build ``y[i, j, :] = x[i, at[j], :]``.

    Parameters of the kernel: x[outer, n, inner] of ``dtype``, as it is passed, at[m] of ``places``,
    y[outer, m, inner]. A negative place counts from the last; one that does not exist is read at
    the nearest end.
    """
    with b.kernel(f"gather_{dtype}") as kernel:
        outer, n, m, inner = (kernel.dim(name) for name in ("outer", "n", "m", "inner"))
        x = kernel.argument("x", (outer, n, inner), dtype)
        at = kernel.argument("at", (m,), places)
        y = kernel.argument("y", (outer, m, inner), dtype)

        def row(i: b.Expr, j: b.Expr) -> Callable[[b.Expr], None]:
            place = b.index(b.greatest(b.least(b.from_first(at[j], n, places), n - 1), 0))
            return lambda k: b.store(y, x[i, place, k], (i, j, k))

        backend.each_element((outer, m, inner), row)
    return kernel.function


def scatter_rows(backend: Backend, dtype: str, places: str, adds: bool = False) -> b.PrimFunc:
    """Build ``y = x`` with ``y[i, at[i, j]] = updates[i, j]``, or ``+=``.

    Parameters of the kernel: x[rows, n], updates[rows, m], at[rows, m] of ``places``, y[rows, n]. A
    negative place counts from the last element; one that does not exist is left out. Of several
    updates of one place the last stays, or all are added in their order, in ``dtype``.
    """
    stored = e.storage_type(dtype)
    with b.kernel(f"scatter_{'add_' if adds else ''}{dtype}") as kernel:
        rows, n, m = (kernel.dim(name) for name in ("rows", "n", "m"))
        x = kernel.argument("x", (rows, n), stored)
        updates = kernel.argument("updates", (rows, m), stored)
        at = kernel.argument("at", (rows, m), places)
        y = kernel.argument("y", (rows, n), stored)

        def place(i: b.Expr, j: b.Expr) -> b.Expr:
            return b.index(b.from_first(at[i, j], n, places))

        backend.scatter_elements(x, updates, place, y, adds=adds)
    return kernel.function


def scatter_blocks(backend: Backend, dtype: str) -> b.PrimFunc:
    """Build ``y = x`` with ``y[at[j], :] = updates[j, :]``.

    Parameters of the kernel: x[rows, block], updates[m, block], at[m] int64, y[rows, block]. A row
    that does not exist is left out; of several updates of one row the last stays.
    """
    stored = e.storage_type(dtype)
    with b.kernel(f"scatter_blocks_{dtype}") as kernel:
        rows, block, m = (kernel.dim(name) for name in ("rows", "block", "m"))
        x = kernel.argument("x", (rows, block), stored)
        updates = kernel.argument("updates", (m, block), stored)
        at = kernel.argument("at", (m,), "int64")
        y = kernel.argument("y", (rows, block), stored)
        backend.scatter_rows(x, updates, at, y)
    return kernel.function
