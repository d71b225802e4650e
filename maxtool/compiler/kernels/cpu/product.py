"""x @ w with matrices known at run time only: packed as the kernel runs, then multiplied."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812

from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu.linear import Linear, many_rows
from maxtool.compiler.target import Tile

# Vectors of a row that are added up side by side, not waiting for each other.
CHAINS = 4

# So many matrices are multiplied side by side, fewer one after the other on all threads.
MATRICES = 4


def product(weight_dtype: str, tile: Tile, transposed: bool, bias: bool = False) -> Any:  # noqa: ANN401
    """Build ``y = x @ w (+ bias)``, or ``x @ w.T`` of transposed matrices.

    Parameters of the kernel: x[batch, rows, k] float32, w[batch, k, n], or w[batch, n, k] if
    transposed, bias[n] float32 if asked for, y[batch, rows, n] float32.

    Args:
        weight_dtype: float32, float16, or bfloat16 (passed as uint16 bits).
        tile: The register tile.
        transposed: How the matrices lie.
        bias: Whether there is one.
    """
    with b.kernel(f"product_{weight_dtype}{'_transposed' if transposed else ''}") as made:
        batch, rows, k, n = (made.dim(name) for name in ("batch", "rows", "k", "n"))
        x = made.argument("x", (batch, rows, k))
        sizes = (n, k) if transposed else (k, n)
        w = made.argument("w", (batch, *sizes), b.STORAGE[weight_dtype])
        offsets = made.argument("bias", (n,)) if bias else None
        y = made.argument("y", (batch, rows, n))

        def matrix(at: b.Expr, threads: bool) -> None:
            shape = (b.ceildiv(n, tile.nr), k, tile.nr)
            blocks = b.workspace(shape, b.STORAGE[weight_dtype])
            _pack(w, at, blocks, (k, n), tile, transposed, threads)
            one = Linear(n, k, tile, weight_dtype, rows, x, blocks, offsets, y, (at,))
            many_rows(one, threads=threads)

        def row(i: b.Expr) -> None:
            at, j = b.index(b.quotient(i, n)), b.index(b.remainder(i, n))
            _dot((x, w, offsets, y), (at, j), k, weight_dtype, tile)

        def matrices() -> None:
            apart = tirx.any(batch >= MATRICES, rows * k * n < b.SERIAL_WORK)
            b.either(
                apart,
                lambda: b.each_row(batch, rows * k * n, lambda at: matrix(at, threads=False)),
                lambda: b.each(batch, lambda at: matrix(at, threads=True), threads=False),
            )

        if transposed:
            b.either(rows == 1, lambda: b.each_row(batch * n, k, row), matrices)
        else:
            matrices()
    return made.function


def _pack(
    w: b.Buffer,
    at: b.Expr,
    blocks: b.Buffer,
    sizes: tuple[b.Expr, b.Expr],
    tile: Tile,
    transposed: bool,
    threads: bool,
) -> None:
    """Copy a matrix into column blocks; beyond its last column the last one repeats."""
    k, n = sizes

    def block(j: b.Expr) -> None:
        base = b.index(j * tile.nr)

        def whole() -> None:
            with T.serial(k) as i:
                for offset, lanes in b.widths(tile.nr, tile.lanes):
                    b.store(blocks, b.load(w, (at, i, base + offset), lanes), (j, i, offset), lanes)

        def part() -> None:
            columns = [b.index(b.least(base + c, n - 1)) for c in range(tile.nr)]
            with T.serial(k) as i:
                for c, column in enumerate(columns):
                    place = (at, column, i) if transposed else (at, i, column)
                    b.store(blocks, w[place], (j, i, c), 1)

        if transposed:
            part()
        else:
            b.either(base + tile.nr <= n, whole, part)

    b.each(b.ceildiv(n, tile.nr), block, threads=threads)


def _dot(
    buffers: tuple[b.Buffer, b.Buffer, b.Buffer | None, b.Buffer],
    place: tuple[b.Expr, b.Expr],
    k: b.Expr,
    weight_dtype: str,
    tile: Tile,
) -> None:
    """The one row of x times a row of w."""
    x, w, bias, y = buffers
    at, j = place
    sums = b.Registers(CHAINS, tile.lanes, tile.lanes)
    sums.clear()
    rest = b.scratch((1,))
    b.store(rest, T.float32(0), (0,), 1)
    step = CHAINS * tile.lanes
    whole = b.index(b.quotient(k, step))

    def term(i: b.Expr, lanes: int) -> b.Expr:
        weights = b.load_weight(w, (at, j, i), lanes, weight_dtype)
        return b.load(x, (at, 0, i), lanes) * weights

    with T.serial(whole) as i:
        for chain in range(CHAINS):
            sums.add(chain, 0, tile.lanes, term(i * step + chain * tile.lanes, tile.lanes))
    with T.serial(whole * step, k) as i:
        b.store(rest, rest[0] + term(i, 1), (0,), 1)
    total = sums.get(0, 0, tile.lanes)
    for chain in range(1, CHAINS):
        total = total + sums.get(chain, 0, tile.lanes)
    value = b.fold(total, tile.lanes, b.add) + rest[0]
    b.store(y, value if bias is None else value + bias[j], (at, 0, j), 1)
