"""Packing of matrices that are known at run time only, as ``pack_linear`` packs weights."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b


def pack_columns(tile: RegisterTile, dtype: str, transposed: bool) -> b.PrimFunc:
    """Build the copy into blocks of ``nr`` columns; beyond the last column, that one repeats.

    Parameters of the kernel: w[batch, k, n], or w[batch, n, k] if transposed, and
    p[batch, ceil(n / nr), k, nr]; both of ``dtype``, as it is passed.
    """
    with b.kernel(f"pack_{'rows' if transposed else 'columns'}_{dtype}") as kernel:
        batch, blocks, k, n = (kernel.dim(name) for name in ("batch", "blocks", "k", "n"))
        w = kernel.argument("w", (batch, n, k) if transposed else (batch, k, n), dtype)
        p = kernel.argument("p", (batch, blocks, k, tile.nr), dtype)

        def block(i: b.Expr) -> None:
            at, j = b.index(b.quotient(i, blocks)), b.index(b.remainder(i, blocks))
            base = b.index(j * tile.nr)

            def whole() -> None:
                with T.serial(k) as row:
                    for offset, width in b.widths(tile.nr, tile.width):
                        values = b.load(w, (at, row, base + offset), width)
                        b.store(p, values, (at, j, row, offset), width)

            def each() -> None:
                with T.serial(b.integer(tile.nr)) as c:
                    source = b.index(b.least(base + c, n - 1))
                    with T.serial(k) as row:
                        source_index = (at, source, row) if transposed else (at, row, source)
                        b.store(p, w[source_index], (at, j, row, c))

            if transposed:
                each()
            else:
                b.either(base + tile.nr <= n, whole, each)

        b.each_row(batch * blocks, k * tile.nr, block)
    return kernel.function
