"""Packing of matrices that are known at run time only, as ``pack_linear`` packs weights."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b


def pack_columns(tile: RegisterTile, dtype: str, transposed: bool, terms: int = 1) -> b.PrimFunc:
    """Build the copy into blocks of ``nr`` columns; beyond the last column, that one repeats.

    Parameters of the kernel: w[batch, k, n], or w[batch, n, k] if transposed, and
    p[batch, ceil(n / nr), k, nr], or p[batch, ceil(n / nr), ceil(k / terms), nr, terms], with zeros
    beyond k; both of ``dtype``, as it is passed.
    """
    name = f"pack_{'rows' if transposed else 'columns'}_{dtype}{'_pairs' if terms > 1 else ''}"
    with b.kernel(name) as kernel:
        batch, blocks, k, n = (kernel.dim(name) for name in ("batch", "blocks", "k", "n"))
        w = kernel.argument("w", (batch, n, k) if transposed else (batch, k, n), dtype)
        steps = b.ceildiv(k, terms)
        several = (terms,) if terms > 1 else ()
        inner = (kernel.dim("steps"), tile.nr, terms) if terms > 1 else (k, tile.nr)
        p = kernel.argument("p", (batch, blocks, *inner), dtype)

        def read(index: tuple[b.Expr, b.Expr], term: int, k_index: b.Expr, width: int) -> b.Expr:
            """Columns of a term, or zeros in place of one beyond k."""
            (at, column), row = index, b.least(k_index, k - 1)
            value = b.load(w, (at, column, row) if transposed else (at, row, column), width)
            zero = b.splat(tirx.const(0, dtype), width)
            return value if term == 0 else T.Select(k_index < k, value, zero)

        def copy(index: tuple[b.Expr, ...], source: tuple[b.Expr, b.Expr], width: int) -> None:
            """Columns of a step, terms side by side."""
            first = index[2] * terms
            values = [read(source, term, first + term, width) for term in range(terms)]
            if terms > 1:
                order = [term * width + column for column in range(width) for term in range(terms)]
                values = [tirx.Shuffle([b.let(value) for value in values], order)]
            b.store(p, values[0], (*index, *(0 for _ in several)), terms * width)

        def block(i: b.Expr) -> None:
            at, j = b.index(b.quotient(i, blocks)), b.index(b.remainder(i, blocks))
            base = b.index(j * tile.nr)

            def whole() -> None:
                with T.serial(steps) as step:
                    for offset, width in b.widths(tile.nr, tile.width):
                        copy((at, j, step, offset), (at, base + offset), width)

            def each() -> None:
                with T.serial(b.integer(tile.nr)) as c:
                    source = b.index(b.least(base + c, n - 1))
                    with T.serial(steps) as step:
                        copy((at, j, step, c), (at, source), 1)

            if transposed:
                each()
            else:
                b.either(base + tile.nr <= n, whole, each)

        b.each_row(batch * blocks, k * tile.nr, block)
    return kernel.function
