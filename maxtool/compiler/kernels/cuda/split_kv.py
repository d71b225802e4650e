"""Attention of one new token: the keys are shared out to blocks, whose results are then joined.

A step reads every key and value once and computes little with them, so what counts is that all
multiprocessors read at once. The keys that are seen are cut into at most ``splits`` shares. How
long a share is follows from the position, which is read on the device: the launch is the same for
every position, as the replay of a CUDA graph demands, and shares that are not needed end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels.cuda import builder as b
from maxtool.compiler.kernels.cuda import vector_access as ln
from maxtool.compiler.kernels.cuda.attention_scores import Scores
from maxtool.compiler.kernels.cuda.flash import STATIC
from maxtool.compiler.kernels.cuda.rope import Angle, Rotation
from maxtool.compiler.kernels.cuda.split_kv_block import KeySplit, short
from maxtool.compiler.kernels.cuda.split_kv_plan import THREADS, SplitPlan
from maxtool.errors import CompilationFailed


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Arguments of both kernels: caches, the position, and partial results."""

    batch: b.Expr
    context: b.Expr
    k: b.Buffer
    v: b.Buffer
    position: b.Buffer
    out: b.Buffer
    sums: b.Buffer


def split_kv_attention(
    heads: int, kv_heads: int, head_dim: int, scores: Scores, dtype: str, splits: int
) -> b.PrimFunc:
    """Build the shares of attention of one token.

    Parameters of the kernel: q[batch, 1, heads, head_dim], k and v[batch, kv_heads, context,
    head_dim] of ``dtype``, position[1] int32, out[batch, heads, splits, head_dim] float32,
    sums[batch, heads, splits, 2] float32. A share leaves the values weighted by powers of two of
    the scores, and the greatest score and the sum of the powers. A share without keys has the sum
    0, and leaves nothing in ``out``.
    """
    split = SplitPlan(heads // kv_heads, head_dim, dtype)
    with b.kernel(f"split_kv_attention_{heads}_{kv_heads}_{head_dim}") as kernel:
        batch, context = kernel.dim("batch"), kernel.dim("context")
        q = kernel.argument("q", (batch, 1, heads, head_dim))
        k, v = _caches(kernel, (batch, kv_heads, context, head_dim), dtype)
        position = kernel.argument("position", (1,), "int32")
        out, sums = _results(kernel, (batch, heads, splits, head_dim))
        arguments = _Arguments(batch, context, k, v, position, out, sums)
        with _blocks(split, scores, splits, kv_heads, arguments) as block:
            block.attend(lambda queries: block.copy(q, queries))
    return kernel.function


def attention_step(
    heads: int,
    kv_heads: int,
    head_dim: int,
    dim: int,
    scores: Scores,
    dtype: str,
    splits: int,
) -> b.PrimFunc:
    """Build the same with the rotation of the token's query and key, and both writes to the cache.

    Parameters of the kernel: keys and values[batch, kv_heads, context, head_dim] of ``dtype``
    (changed in place), q[batch, 1, heads, head_dim], k and v[batch, 1, kv_heads, head_dim], cos and
    sin[angles, dim / 2], first[1] int32 of the row of the angles, position[1] int32, and out and
    sums as :func:`split_kv_attention` leaves them. Every block rotates its queries; the one whose
    share ends with the token's key writes it before it reads. Only for plans that
    :func:`takes_steps` names.
    """
    split = SplitPlan(heads // kv_heads, head_dim, dtype)
    with b.kernel(f"attention_step_{heads}_{kv_heads}_{head_dim}") as kernel:
        batch, context, angles = kernel.dim("batch"), kernel.dim("context"), kernel.dim("angles")
        caches = _caches(kernel, (batch, kv_heads, context, head_dim), dtype)
        q = kernel.argument("q", (batch, 1, heads, head_dim))
        sizes = (batch, 1, kv_heads, head_dim)
        k, v = (kernel.argument(name, sizes) for name in ("new_k", "new_v"))
        cos, sin = (kernel.argument(name, (angles, dim // 2)) for name in ("cos", "sin"))
        first = kernel.argument("first", (1,), "int32")
        position = kernel.argument("position", (1,), "int32")
        out, sums = _results(kernel, (batch, heads, splits, head_dim))
        arguments = _Arguments(batch, context, *caches, position, out, sums)
        with _blocks(split, scores, splits, kv_heads, arguments) as block:
            angle = (cos, sin, b.index(b.clamped(first[0], angles)))
            rotation = Rotation(head_dim, dim)

            def prepare(queries: b.Buffer) -> None:
                block.rotate(rotation, angle, q, queries)
                with b.when(block.stop == position[0] + 1):
                    block.write(rotation, angle, k, v)

            block.attend(prepare)
    return kernel.function


def takes_steps(split: SplitPlan) -> bool:
    """Return whether one kernel can rotate and attend.

    The queries of a group must be in one block, since others would wait for what it writes.
    """
    return split.chunks == 1


def _caches(kernel: b.Kernel, sizes: tuple[b.Index, ...], dtype: str) -> tuple[b.Buffer, b.Buffer]:
    storage_dtype = b.STORAGE[dtype]
    return kernel.argument("k", sizes, storage_dtype), kernel.argument("v", sizes, storage_dtype)


def _results(kernel: b.Kernel, sizes: tuple[b.Index, ...]) -> tuple[b.Buffer, b.Buffer]:
    return kernel.argument("out", sizes), kernel.argument("sums", (*sizes[:3], 2))


@contextmanager
def _blocks(
    split: SplitPlan, scores: Scores, splits: int, kv_heads: int, arguments: _Arguments
) -> Iterator[_Block]:
    """Launch the blocks; refuse heads so wide that a block cannot add up its results."""
    if split.shared_memory > STATIC:
        raise CompilationFailed(
            f"attention with heads of {split.head_dim} elements does not fit into the "
            f"{STATIC >> 10} KiB of shared memory of a block"
        )
    blocks = [splits * split.chunks, kv_heads, arguments.batch]
    with b.launch(blocks, THREADS, split.min_blocks_per_sm) as (x, kv, at, thread):
        share, chunk = b.index(b.quotient(x, split.chunks)), b.remainder(x, split.chunks)
        after = T.Cast("int64", arguments.position[0]) + 1
        end = b.index(b.greatest(b.least(after, arguments.context), 0))
        begin = b.index(scores.first(end - 1))
        # Whole rounds of a block.
        rounds = b.ceildiv(b.ceildiv(end - begin, splits), split.step)
        length = b.index(rounds * split.step)
        first = short(begin + share * length)
        stop = short(b.least(T.Cast("int64", first) + length, end))
        key_split = KeySplit(split, scores, thread, b.index(chunk * split.queries))
        base = b.index(kv * split.group + key_split.query)
        yield _Block(arguments, key_split, at, kv, share, base, first, stop)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of the launch, and its steps."""

    arguments: _Arguments
    key_split: KeySplit
    at: b.Expr  # the sequence
    kv: b.Expr  # the head of keys
    share: b.Expr  # which of the shares
    base: b.Expr  # the head of its first query
    first: b.Expr  # its first key, int32
    stop: b.Expr  # the key after its last, int32

    def attend(self, prepare: Callable[[b.Buffer], None]) -> None:
        """Process the keys of the share, if there are any.

        ``prepare`` puts the queries into shared memory ``[queries, head_dim]``; what else it writes
        is there, too, when the keys are read.
        """
        arguments, key_split = self.arguments, self.key_split
        split, step = key_split.split, key_split.split.step
        target = self.at, self.base, self.share

        def work() -> None:
            queries = b.shared((split.queries, split.head_dim))
            prepare(queries)
            b.barrier()
            key_split.start(queries)
            rounds = short(T.truncdiv(self.stop - self.first + (step - 1), b.int32(step)))
            with T.serial(rounds) as i:
                start = short(self.first + i * step)
                key_split.round(arguments.k, arguments.v, (self.at, self.kv), start, self.stop)
            key_split.join_streams()
            key_split.finish(arguments.out, arguments.sums, *target)

        b.either(self.first < self.stop, work, lambda: key_split.nothing(arguments.sums, *target))

    def _each_head(self, units: int, body: Callable[[b.Expr, b.Expr, b.Expr], None]) -> None:
        """Run ``body(g, head, unit)`` for units of each query; one beyond the group is its last."""
        key_split, split = self.key_split, self.key_split.split

        def work(index: b.Expr) -> None:
            g = b.let(T.truncdiv(index, b.int32(units)))
            wide = T.Cast("int64", g)
            last = wide if split.chunks == 1 else b.least(wide, split.group - 1 - key_split.query)
            body(g, b.index(self.base + last), b.let(index - g * units))

        ln.strided(split.queries * units, key_split.thread, THREADS, work)

    def copy(self, q: b.Buffer, queries: b.Buffer) -> None:
        """Copy the queries into shared memory."""
        head_dim = self.key_split.split.head_dim
        width = ln.widest("float32", head_dim)

        def copy(g: b.Expr, head: b.Expr, unit: b.Expr) -> None:
            numbers = ln.read(q, (self.at, 0, head, unit * width), width)
            ln.write(queries, numbers, (g, unit * width), width)

        self._each_head(head_dim // width, copy)

    def rotate(self, rotation: Rotation, angle: Angle, q: b.Buffer, queries: b.Buffer) -> None:
        """Copy the queries into shared memory, rotated."""
        width = rotation.width()

        def rotate(g: b.Expr, head: b.Expr, unit: b.Expr) -> None:
            source = (q, (self.at, 0, head))
            rotation.apply(unit, width, source, angle, (queries, (g,), "float32"))

        self._each_head(rotation.units(width), rotate)

    def write(self, rotation: Rotation, angle: Angle, k: b.Buffer, v: b.Buffer) -> None:
        """Write the token's key, rotated, and its value, as the last of the share."""
        split, thread = self.key_split.split, self.key_split.thread
        dtype, width = split.dtype, rotation.width(split.dtype)
        source, target = (self.at, 0, self.kv), (self.at, self.kv, self.stop - 1)

        def rotate(unit: b.Expr) -> None:
            rotation.apply(unit, width, (k, source), angle, (self.arguments.k, target, dtype))

        def copy(unit: b.Expr) -> None:
            numbers = ln.read(v, (*source, unit * width), width)
            ln.write(self.arguments.v, numbers, (*target, unit * width), width, dtype)

        ln.strided(rotation.units(width), thread, THREADS, rotate)
        ln.strided(split.head_dim // width, thread, THREADS, copy)
