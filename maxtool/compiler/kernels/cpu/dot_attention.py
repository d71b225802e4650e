"""Attention of any query to any key: a task is one query of one head, over all its keys at once."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.cpu_target import RegisterTile
from maxtool.compiler.kernels.cpu import builder as b
from maxtool.compiler.kernels.cpu import elements as e
from maxtool.compiler.kernels.element_order import maximum
from maxtool.compiler.kernels.kernel_options import HeadSizes, Mask


def dot_attention(
    tile: RegisterTile,
    dtype: str,
    heads: HeadSizes,
    mask: Mask | None,
    causal: bool,
    scale: float,
    out: str,
) -> b.PrimFunc:
    """Build ``softmax(q @ k.T * scale + mask) @ v`` with the online softmax.

    Parameters of the kernel: q[batch, heads, n, d], k[batch, kv_heads, m, d],
    v[batch, kv_heads, m, dv], mask[1 or batch, 1 or heads, 1 or n, 1 or m] if there is one,
    y[batch, heads, n, dv]; all but a mask of bool are of ``dtype``, y of ``out``. A query that sees
    no key gets zeros.
    """
    width, compute_dtype = e.width_of(dtype, tile.width), e.compute_type(dtype)
    with b.kernel(f"dot_attention_{dtype}") as kernel:
        batch, n, m = kernel.dim("batch"), kernel.dim("n"), kernel.dim("m")
        q = kernel.argument("q", (batch, heads.queries, n, heads.key_dim), e.storage_type(dtype))
        k = kernel.argument("k", (batch, heads.keys, m, heads.key_dim), e.storage_type(dtype))
        v = kernel.argument("v", (batch, heads.keys, m, heads.value_dim), e.storage_type(dtype))
        hidden = None
        if mask is not None:
            full = (batch, heads.queries, n, m)
            sizes = [1 if one else size for one, size in zip(mask.single, full, strict=True)]
            hidden = kernel.argument("mask", sizes, e.storage_type(mask.dtype))
        y = kernel.argument("y", (batch, heads.queries, n, heads.value_dim), e.storage_type(out))

        def row(i: b.Expr) -> None:
            line = b.index(b.quotient(i, n))
            at, r = b.index(b.quotient(line, heads.queries)), b.index(i - line * n)
            head = b.index(b.remainder(line, heads.queries))
            shared = b.index(b.quotient(head, heads.queries // heads.keys))
            state = _State(compute_dtype, width, heads)
            state.load(lambda o, w: e.read(q, (at, head, r, o), dtype, w), scale)
            seen = b.index(b.least(m, b.greatest(r + m - n + 1, 0)) if causal else m)

            def score(j: b.Index) -> b.Expr:
                found = state.score(lambda o, w: e.read(k, (at, shared, j, o), dtype, w))
                if mask is not None:
                    where = (at, head, r, j)
                    index = [
                        0 if is_single else p
                        for is_single, p in zip(mask.single, where, strict=True)
                    ]
                    found = _masked(found, hidden, index, mask.dtype, compute_dtype)
                return b.let(found)

            def value(j: b.Index) -> b.PrimFunc:
                return lambda o, w: e.read(v, (at, shared, j, o), dtype, w)

            blocks = b.index(b.quotient(seen, width))
            with T.serial(blocks) as block:
                start = b.index(block * width)
                state.begin()
                with T.serial(width) as j:
                    state.put(j, score(start + j))
                state.add_block(lambda j: value(start + j))
            with T.serial(seen - blocks * width) as j:
                rest = b.index(blocks * width + j)
                result = score(rest)
                with b.when(state.counts(result)):
                    state.add(result, value(rest))
            state.finish(lambda o, w, value: e.write(y, value, (at, head, r, o), out, w))

        b.each_row(batch * heads.queries * n, m * heads.key_dim, row)
    return kernel.function


def _masked(
    score: b.Expr, mask: b.Buffer, index: list[b.Index], dtype: str, compute_dtype: str
) -> b.Expr:
    if dtype == "bool":
        return T.Select(mask[tuple(index)], score, tirx.const(float("-inf"), compute_dtype))
    return score + e.converted(e.read(mask, index, dtype), dtype, compute_dtype)


class _State:
    """Running state of one query: the greatest score, the sum of powers, the sum of values."""

    def __init__(self, dtype: str, width: int, heads: HeadSizes) -> None:
        self.kind, self.width, self.heads = dtype, width, heads
        self.query = b.scratch((heads.key_dim,), dtype)
        self.out = b.scratch((heads.value_dim,), dtype)
        self.top, self.total = b.scratch((1,), dtype), b.scratch((1,), dtype)
        self.scores, self.weights = b.scratch((width,), dtype), b.scratch((width,), dtype)
        self.best = b.scratch((1,), dtype)
        b.store(self.top, tirx.const(float("-inf"), dtype), (0,))
        b.store(self.total, tirx.const(0, dtype), (0,))

    def load(self, read: Any, scale: float) -> None:  # noqa: ANN401
        def one(o: b.Index, w: int) -> None:
            b.store(self.query, read(o, w) * e.constant(scale, self.kind, w), (o,), w)

        b.each_vector(self.heads.key_dim, self.width, one)
        b.each_vector(
            self.heads.value_dim,
            self.width,
            lambda o, w: b.store(self.out, e.constant(0, self.kind, w), (o,), w),
        )

    def score(self, read: Any) -> b.Expr:  # noqa: ANN401
        """The product of the query and a key."""
        whole, rest = b.scratch((self.width,), self.kind), b.cell(dtype=self.kind)
        b.store(whole, e.constant(0, self.kind, self.width), (0,), self.width)
        rest.set(tirx.const(0, self.kind))

        def one(o: b.Index, w: int) -> None:
            product = b.load(self.query, (o,), w) * read(o, w)
            if w == self.width:
                b.store(whole, b.load(whole, (0,), w) + product, (0,), w)
            else:
                rest.add(b.fold(product, w, b.add))

        b.each_vector(self.heads.key_dim, self.width, one)
        return b.fold(b.load(whole, (0,), self.width), self.width, b.add) + rest.value

    def counts(self, score: b.Expr) -> b.Expr:
        """Return whether a key is seen: NaN counts, so that it is not lost."""
        return tirx.any(score > tirx.const(float("-inf"), self.kind), tirx.isnan(score))

    def begin(self) -> None:
        """Begin a block of as many keys as a vector has elements."""
        b.store(self.best, tirx.const(float("-inf"), self.kind), (0,))

    def put(self, index: b.Index, score: b.Expr) -> None:
        """The score of one key of the block."""
        b.store(self.scores, score, (index,))
        b.store(self.best, maximum(self.best[0], score), (0,))

    def add_block(self, value: Any) -> None:  # noqa: ANN401
        """Take the values of the block's keys in, with one power for all of them."""
        top = b.let(maximum(self.top[0], self.best[0]))
        with b.when(self.counts(top)):
            shrink = b.let(e.exp(self.top[0] - top, self.kind))
            b.store(self.top, top, (0,))
            b.store(self.total, self.total[0] * shrink, (0,))
            self._each_out(lambda _o, w, old: old * b.splat(shrink, w))
            gaps = b.load(self.scores, (0,), self.width) - b.splat(top, self.width)
            b.store(self.weights, e.exp(gaps, self.kind, self.width), (0,), self.width)
            with T.serial(self.width) as j:
                score = b.let(self.scores[j])
                with b.when(self.counts(score)):
                    self._add_weighted(b.let(self.weights[j]), value(j))

    def _add_weighted(self, weight: b.Expr, read: Any) -> None:  # noqa: ANN401
        b.store(self.total, self.total[0] + weight, (0,))
        self._each_out(lambda o, w, old: old + read(o, w) * b.splat(weight, w))

    def _each_out(self, change: Any) -> None:  # noqa: ANN401
        def one(o: b.Index, w: int) -> None:
            b.store(self.out, change(o, w, b.load(self.out, (o,), w)), (o,), w)

        b.each_vector(self.heads.value_dim, self.width, one)

    def add(self, score: b.Expr, read: Any) -> None:  # noqa: ANN401
        """Take a key's value in."""
        top = b.let(maximum(self.top[0], score))
        shrink = b.let(e.exp(self.top[0] - top, self.kind))
        weight = b.let(e.exp(score - top, self.kind))
        b.store(self.top, top, (0,))
        b.store(self.total, self.total[0] * shrink, (0,))
        self._each_out(lambda _o, w, old: old * b.splat(shrink, w))
        self._add_weighted(weight, read)

    def finish(self, write: Any) -> None:  # noqa: ANN401
        """Hand over the mean of the values, zeros if there was none."""
        zero = tirx.const(0, self.kind)
        total = b.let(T.Select(self.total[0] == zero, zero + 1, self.total[0]))
        b.each_vector(
            self.heads.value_dim,
            self.width,
            lambda o, w: write(o, w, b.load(self.out, (o,), w) / b.splat(total, w)),
        )
