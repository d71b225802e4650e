"""Expressions have the values that LLVM gives them: one program, as threads and as loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.tirx.script.builder import ir as T  # noqa: N812 - TVM's own name for it

from maxtool.compiler.kernels.cuda import builder as b
from tests.simt import run

BLOCKS, THREADS = 2, 32
SIZE = BLOCKS * THREADS
# Without fused multiply-add, which LLVM would use and round once where two operations stand.
MACHINE = {"kind": "llvm", "mcpu": "x86-64"}
TYPES = ("int32", "int64", "uint32", "float32")
# TVM leaves it open what a number that is too large becomes, even one without a sign: none is.
LIMIT = {"int32": 1 << 30, "int64": 1 << 61, "uint32": 1 << 31}
PRIME = 1009


@dataclass(frozen=True)
class Term:
    """An expression, and what its magnitude cannot exceed if it is an integer."""

    value: Any
    most: int = 0


class Terms:
    """Draws expressions over the inputs of a kernel, at one of their elements."""

    def __init__(self, data: st.DataObject, inputs: dict[str, Any], at: Any) -> None:
        self._data = data
        self._inputs = inputs
        self._at = at

    def draw(self, dtype: str, depth: int) -> Term:
        """An expression of a type."""
        if not depth:
            return self._leaf(dtype)
        name = self._data.draw(st.sampled_from(list(OPERATORS[dtype])))
        term = OPERATORS[dtype][name](self, dtype, depth - 1)
        if term.most >= LIMIT.get(dtype, term.most + 1):
            return Term(tirx.floormod(term.value, tirx.const(PRIME, dtype)), PRIME)
        return term

    def number(self, low: int, high: int) -> int:
        """A constant."""
        return self._data.draw(st.integers(low, high))

    def source(self, *others: str) -> str:
        """A type to convert from."""
        return self._data.draw(st.sampled_from(others))

    def _leaf(self, dtype: str) -> Term:
        if dtype == "bool":
            return Term(self._inputs["int32"][self._at] > self.number(-5, 5))
        if self._data.draw(st.booleans()):
            return Term(self._inputs[dtype][self._at], 1000)
        if dtype == "float32":
            return Term(tirx.const(self.number(-64, 64) / 8, dtype))
        low = 0 if dtype == "uint32" else -1000
        return Term(tirx.const(self.number(low, 1000), dtype), 1000)


def select(terms: Terms, dtype: str, depth: int) -> Term:
    condition = terms.draw("bool", depth)
    yes, no = terms.draw(dtype, depth), terms.draw(dtype, depth)
    choose = (tirx.Select, tirx.if_then_else)[terms.number(0, 1)]
    return Term(choose(condition.value, yes.value, no.value), max(yes.most, no.most))


def binary(
    operate: Callable[[Any, Any], Any],
    most: Callable[[int, int], int],
    terms: Terms,
    dtype: str,
    depth: int,
) -> Term:
    a, c = terms.draw(dtype, depth), terms.draw(dtype, depth)
    return Term(operate(a.value, c.value), most(a.most, c.most))


def divided(operate: Callable[[Any, Any], Any], terms: Terms, dtype: str, depth: int) -> Term:
    a, c = terms.draw(dtype, depth), terms.draw(dtype, depth)
    # TVM's analysis stops at divisors that it knows to be negative.
    positive = tirx.bitwise_and(c.value, tirx.const(255, dtype)) + tirx.const(1, dtype)
    return Term(operate(a.value, positive), max(a.most, 256))


def shifted(left: bool, terms: Terms, dtype: str, depth: int) -> Term:
    a, by = terms.draw(dtype, depth), terms.number(0, 5)
    count = tirx.const(by, dtype)
    if left:  # of what is negative, C++ says nothing
        a = Term(tirx.bitwise_and(a.value, tirx.const(1023, dtype)), 1023)
    shift = T.shift_left if left else T.shift_right
    return Term(shift(a.value, count), a.most << by if left else a.most)


def converted(terms: Terms, dtype: str, depth: int) -> Term:
    source = terms.source(*(type_ for type_ in TYPES if type_ != dtype))
    a = terms.draw(source, depth)
    value = a.value
    if source == "float32":  # what does not fit becomes different things on CPUs and GPUs
        value = tirx.max(tirx.min(value, tirx.const(1e6, source)), tirx.const(0, source))
        return Term(tirx.Cast(dtype, value), 10**6)
    if dtype != "float32":
        return Term(tirx.Cast(dtype, tirx.floormod(value, tirx.const(PRIME, source))), PRIME)
    return Term(tirx.Cast(dtype, value), a.most)


def bits(source: str, terms: Terms, dtype: str, depth: int) -> Term:
    value = terms.draw(source, depth).value
    if dtype == "float32":  # below 2: neither infinite nor NaN
        value = tirx.bitwise_and(value, tirx.const(0x3FFFFFFF, source))
    return Term(tirx.reinterpret(dtype, value), 1 << 32)


def multiplied(terms: Terms, dtype: str, depth: int) -> Term:
    product = terms.draw(dtype, depth).value * terms.draw(dtype, depth).value
    return Term(tirx.max(tirx.min(product, tirx.const(1e4, dtype)), tirx.const(-1e4, dtype)))


def unary(function: Callable[[Any], Any], terms: Terms, dtype: str, depth: int) -> Term:
    return Term(function(terms.draw(dtype, depth).value))


def quotient(terms: Terms, dtype: str, depth: int) -> Term:
    a, c = terms.draw(dtype, depth), terms.draw(dtype, depth)
    return Term(a.value / (tirx.abs(c.value) + tirx.const(1, dtype)))


def through_half(x: Any) -> Any:
    limited = tirx.max(tirx.min(x, T.float32(6e4)), T.float32(-6e4))
    return tirx.Cast("float32", tirx.Cast("float16", limited))


def compared(terms: Terms, _dtype: str, depth: int) -> Term:
    source = terms.source(*TYPES)
    a, c = terms.draw(source, depth).value, terms.draw(source, depth).value
    kinds = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    return Term(kinds[terms.number(0, 5)](a, c))


def logical(operate: Callable[..., Any], count: int, terms: Terms, _: str, depth: int) -> Term:
    return Term(operate(*(terms.draw("bool", depth).value for _ in range(count))))


Rule = Callable[[Terms, str, int], Term]
ANY: dict[str, Rule] = {
    "select": select,
    "convert": converted,
    "+": partial(binary, lambda a, c: a + c, lambda a, c: a + c),
    "min": partial(binary, tirx.min, max),
    "max": partial(binary, tirx.max, max),
}
# A number of magnitude m has bits below 2m.
WHOLE: dict[str, Rule] = ANY | {
    "*": partial(binary, lambda a, c: a * c, lambda a, c: a * c),
    "&": partial(binary, tirx.bitwise_and, lambda a, c: 2 * max(a, c)),
    "|": partial(binary, tirx.bitwise_or, lambda a, c: 2 * max(a, c)),
    "^": partial(binary, tirx.bitwise_xor, lambda a, c: 2 * max(a, c)),
    "//": partial(divided, tirx.floordiv),
    "%": partial(divided, tirx.floormod),
    "/": partial(divided, tirx.truncdiv),
    "rem": partial(divided, tirx.truncmod),
    "<<": partial(shifted, True),
    ">>": partial(shifted, False),
}
DIFFERENCE: dict[str, Rule] = {"-": partial(binary, lambda a, c: a - c, lambda a, c: a + c)}
OPERATORS: dict[str, dict[str, Rule]] = {
    "int32": WHOLE | DIFFERENCE,
    "int64": WHOLE | DIFFERENCE,
    "uint32": WHOLE | {"bits": partial(bits, "float32")},
    "float32": ANY
    | DIFFERENCE
    | {
        "*": multiplied,
        "/": quotient,
        "floor": partial(unary, tirx.floor),
        "ceil": partial(unary, tirx.ceil),
        "trunc": partial(unary, tirx.trunc),
        "rint": partial(unary, tirx.nearbyint),
        "abs": partial(unary, tirx.abs),
        "sqrt": partial(unary, lambda x: tirx.sqrt(tirx.abs(x))),
        "half": partial(unary, through_half),
        "bits": partial(bits, "uint32"),
    },
    "bool": {
        "compare": compared,
        "and": partial(logical, tirx.And, 2),
        "or": partial(logical, tirx.Or, 2),
        "not": partial(logical, tirx.Not, 1),
    },
}


@contextmanager
def as_threads() -> Iterator[tuple[Any, Any]]:
    with (
        T.launch_thread("blockIdx.x", BLOCKS) as block,
        T.launch_thread("threadIdx.x", THREADS) as thread,
    ):
        yield block, thread


@contextmanager
def as_loops() -> Iterator[tuple[Any, Any]]:
    with T.serial(BLOCKS) as block, T.serial(THREADS) as thread:
        yield block, thread


def kernel(data: st.DataObject, over: Callable[[], Any], outputs: tuple[str, ...]) -> Any:
    """A kernel whose outputs are expressions of its inputs."""
    with b.kernel("expressions") as built:
        inputs = {dtype: built.argument(dtype, (SIZE,), dtype) for dtype in TYPES}
        results = [built.argument(f"out{i}", (SIZE,), dtype) for i, dtype in enumerate(outputs)]
        with over() as (block, thread):
            at = block * THREADS + thread
            terms = Terms(data, inputs, at)
            for dtype, result in zip(outputs, results, strict=True):
                b.store(result, terms.draw(dtype, 4).value, (at,), 1)
    return built.function


def arrays() -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    return [
        random.integers(-1000, 1001, SIZE).astype("i4"),
        random.integers(-1000, 1001, SIZE),
        random.integers(0, 1001, SIZE).astype("u4"),
        (random.standard_normal(SIZE) * 10).astype("f4"),
    ]


class Repeated:
    """Draws the same again: what was drawn for threads, for loops."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self._drawn: list[Any] = []
        self._next = -1

    def rewind(self) -> None:
        self._next = 0

    def draw(self, strategy: Any) -> Any:
        if self._next < 0:
            self._drawn.append(self._data.draw(strategy))
            return self._drawn[-1]
        self._next += 1
        return self._drawn[self._next - 1]


@given(st.data())
@settings(max_examples=5, deadline=None)
def test_threads_compute_what_loops_do(data: Any) -> None:
    outputs = (*TYPES, "float32", "int32")
    drawn: Any = Repeated(data)
    threads = kernel(drawn, as_threads, outputs)
    drawn.rewind()
    loops = tvm.compile(tvm.IRModule({"main": kernel(drawn, as_loops, outputs)}), target=MACHINE)
    taken, actual = arrays(), [np.zeros(SIZE, dtype) for dtype in outputs]
    run(threads, *taken, *actual)
    expected = [tvm.runtime.tensor(np.zeros(SIZE, dtype)) for dtype in outputs]
    loops["main"](*(tvm.runtime.tensor(array) for array in taken), *expected)
    for mine, its in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(mine, its.numpy())
