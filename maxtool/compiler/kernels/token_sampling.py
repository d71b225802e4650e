"""Drawing a token from the logits of one row: the same steps for every target.

The meanings, and their order, are those of ``maxtool.runtime.loader.sampling``, which draws on the
host. Nothing is sorted: where a sorted list would be cut is found by halving the range between two
logits, each time with one sweep over the row. Logits and shares are float32, where the host uses
float64. So a token differs from the host's only where rounding decides: where penalised logits come
to lie beside others, and where a share or the drawn number is within some millionths of the edge
between two tokens. Sums are added in one order, so the same row gives the same token.
"""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels import token_probabilities as p
from maxtool.compiler.kernels.backend import Backend, RowThreads

# The numbers in ``settings``. Off are a top_k of 0, a top_p of 1, a min_p of 0, a penalty of 1.
TEMPERATURE, TOP_K, TOP_P, MIN_P, PENALTY = range(5)

# Shares below this part of the largest are taken as 0: the least normal float32.
LEAST_SHARE = 2.0**-126

SWEEPS = 32  # over a row
THREADS = 512  # of a GPU, for a row


def sample(backend: Backend) -> b.PrimFunc:
    """Build the draw; see :class:`SamplingArguments`."""
    with b.kernel("sample") as kernel:
        arguments = SamplingArguments(kernel)

        def row(i: b.Expr, threads: RowThreads) -> None:
            token = arguments.drawn(i, threads)
            with threads.once():
                b.store(arguments.token, token, (i, 0))

        backend.each_row(arguments.rows, arguments.vocab, row, work=SWEEPS, group=THREADS)
    return kernel.function


class SamplingArguments:
    """The parameters of a kernel that draws a token for each row of logits.

    They are seen[rows, vocab] int8, which is written in place: 1 for each token that was in the
    text; logits[rows, vocab] float32; tokens[rows, count] int64, which are marked as seen first;
    draws[context] float32 and position[1] int32: the number at that position is used;
    settings[5] float32; token[rows, 1] int64, the result.
    """

    def __init__(self, kernel: b.Kernel) -> None:
        self.rows, self.vocab = kernel.dim("rows"), kernel.dim("vocab")
        self._count, self._context = kernel.dim("count"), kernel.dim("context")
        self._seen = kernel.argument("seen", (self.rows, self.vocab), "int8")
        self._logits = kernel.argument("logits", (self.rows, self.vocab))
        self._tokens = kernel.argument("tokens", (self.rows, self._count), "int64")
        self._draws = kernel.argument("draws", (self._context,))
        self._position = kernel.argument("position", (1,), "int32")
        self._settings = kernel.argument("settings", (PENALTY + 1,))
        self.token = kernel.argument("token", (self.rows, 1), "int64")

    def drawn(self, i: b.Expr, threads: RowThreads) -> b.Expr:
        """Mark the tokens of a row and draw the next; -1 where the logits are not finite."""
        seen = tirx.const(1, "int8")

        def mark(k: b.Expr) -> None:
            token = b.index(self._tokens[i, k])
            with b.when(tirx.all(token >= 0, token < self.vocab)):
                b.store(self._seen, seen, (i, token))

        threads.each(self._count, mark)
        threads.barrier()
        penalty = b.let(self._settings[PENALTY])

        def load(k: b.Expr) -> tuple[b.Expr, b.Expr]:
            return self._logits[i, k], self._seen[i, k]

        def penalised(logit: b.Expr, mark: b.Expr) -> b.Expr:
            moved = T.Select(logit > T.float32(0), logit / penalty, logit * penalty)
            return T.if_then_else(mark == seen, moved, logit)

        number = b.let(self._draws[b.clamped(self._position[0], self._context)])
        logits = p.Logits(threads, self.vocab, ("float32", "int8"), load, penalised)
        return draw(logits, number, self._settings)


def draw(logits: p.Logits, number: b.Expr, settings: b.Buffer) -> b.Expr:
    """The place of the token that is drawn; -1 where the greatest logit is no finite number.

    The ``number``, from 0 up to 1, decides; ``settings`` are as ``TEMPERATURE`` and so on say.
    """
    chosen = b.cell(b.integer(-1))
    best = logits.fold(lambda _, logit: logit, "max", "float32")
    temperature = b.let(settings[TEMPERATURE])
    with b.when(tirx.all(best > T.float32(-p.INFINITY), best < T.float32(p.INFINITY))):
        # Where nothing is drawn at random, shares say nothing, and all of them count.
        divisor = b.let(T.Select(temperature > T.float32(0), temperature, T.float32(1)))
        shares = p.TokenProbabilities(logits, best, divisor)
        edge, nth, least = p.Threshold(shares), b.scratch((1,), "int64"), b.scratch((1,))
        b.store(edge.low, p.key_of(best), (0,))
        b.store(edge.high, edge.low[0] + p.word(1), (0,))
        b.store(nth, b.integer(0), (0,))
        b.store(least, T.float32(LEAST_SHARE), (0,))
        with b.when(temperature > T.float32(0)):
            _draw(edge, shares, nth, least, number, settings)
        low, high = b.let(p.logit_of(edge.low[0])), b.let(p.logit_of(edge.high[0]))

        def counts(logit: b.Expr) -> b.Expr:
            return shares.of(logit, least[0]) > T.float32(0)

        chosen.set(logits.place(low, high, counts, nth[0]))
    return chosen.value


def _draw(
    edge: p.Threshold,
    shares: p.TokenProbabilities,
    nth: b.Buffer,
    least: b.Buffer,
    number: b.Expr,
    settings: b.Buffer,
) -> None:
    """Find the tokens among which the drawn one is, which of them it is, and what counts.

    The list of tokens is cut to a number of them (top-k), then to a share (top-p), and then where
    the drawn number is: three times the same, so that it is one loop.
    """
    count = b.index(T.Cast("int64", settings[TOP_K]))
    share, part_of_best = b.let(settings[TOP_P]), b.let(settings[MIN_P])
    floor, target = b.cell(), b.cell(dtype="float64")
    surplus = b.cell(dtype="int64")  # tokens at the floor that are cut off
    floor.set(T.float32(-p.INFINITY))
    surplus.set(b.integer(0))
    with T.serial(b.integer(3)) as cut:
        by_count, by_share, last = cut == 0, cut == 1, cut == 2
        limits = tirx.all(count > 0, count < shares.logits.vocab)
        asked = tirx.any(tirx.all(by_count, limits), tirx.all(by_share, share < T.float32(1)), last)
        with b.when(asked):
            raised = tirx.all(last, part_of_best > least[0])
            b.store(least, T.Select(raised, part_of_best, least[0]), (0,))

            def begin(total: b.Expr) -> None:
                each = p.wide(shares.of(floor.value, least[0]))
                cut_off = T.Cast("float64", surplus.value) * each
                part = p.wide(T.Select(last, number, share))
                target.set(part * (total - cut_off))

            def holds(found: b.Expr, total: b.Expr) -> b.Expr:
                enough = T.Select(last, total > target.value, total >= target.value)
                return T.Select(by_count, found >= count, enough)

            edge.find(floor.value, least[0], begin, holds, T.Select(by_count, count, b.integer(-1)))
            end = b.let(p.logit_of(edge.low[0]))
            each = p.wide(shares.of(end, least[0]))
            several = edge.equal > 1
            passed = b.let((target.value - edge.mass[0]) / each)
            with b.when(tirx.all(by_share, several)):
                needed = b.greatest(T.Cast("int64", T.ceil(passed)), 1)
                surplus.set(b.greatest(edge.equal - needed, 0))
            with b.when(tirx.all(last, several)):
                kept = edge.equal - T.Select(end == floor.value, surplus.value, b.integer(0))
                within = b.least(T.Cast("int64", passed), kept - 1)
                b.store(nth, b.greatest(within, 0), (0,))
            floor.set(end)
