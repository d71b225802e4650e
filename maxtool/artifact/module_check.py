"""Check of an artifact of a module: its functions beside their graphs, evaluated in float64.

It proves that the machine code computes what the graphs say, at several sizes of each named
dimension.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from maxtool.architectures import Limit
from maxtool.artifact.allowed_error import with_rounding, with_steps
from maxtool.artifact.check import GRAPHS, CallRefused, RecordedChecks, Reference
from maxtool.artifact.check_inputs import values
from maxtool.artifact.claimed_sizes import claims_of, fitting
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.pure_graphs import nested
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import CallNode, Graph, Node, Tensor
from maxtool.runtime.loader.comparison import Tolerance
from maxtool.runtime.loader.recorded_checks import RecordedCall, RecordedCheck, Runner

Array: TypeAlias = np.ndarray[Any, Any]

SHARES = {4: 2e-1, 8: 5e-2, 11: 2e-2}
"""Errors that are allowed as a share of the expected size, by the digits of the narrowest floats on
the way (float8, bfloat16, float16)."""
USUAL = 1e-4
"""The share where all floats are wider: sums are in float32."""
ROUNDING = 1e-6
"""Error that is allowed whatever the expected size: that of sums in float32 which cancel out. It is
as small for narrow floats, or outputs that are small themselves, such as those of a softmax, would
pass whatever they are."""
SIZES = (3, 8)
"""Usual sizes of a named dimension; it is given both, and its least, and once ``MANY``."""
MANY = 67
"""More rows than those beyond which kernels compute otherwise, and no multiple of a tile's."""
LONG = 1000
"""What is tried where fewer are refused: samples of a sound, or pixels."""
MOST_ELEMENTS = 1 << 27
"""Elements that a graph may compute for as many: a batch of 67 images would take minutes."""
WHOLE_NUMBERS = (0, 4)
"""Whole numbers that are drawn, so that they are places of small tables."""


def trials_of(contents: Contents, reference: Reference = GRAPHS) -> RecordedChecks:
    """Calls with inputs drawn at random by a fixed seed, and each of a reference's outputs."""
    model = reference.make(contents)
    made = [
        trials
        for function in contents.functions
        for trials in _calls_that_run(contents, function, model)
    ]
    trials = [one for each in made for one in each]
    if contents.rounding and reference is GRAPHS:
        trials = with_rounding(contents, trials)
    if has_thresholds(contents):
        trials = with_steps(contents, trials)
    each = tuple(trials)
    return RecordedChecks(each, reference.name, tokens=0, calls=len(made))


def _calls_that_run(
    contents: Contents, function: NamedGraph, model: Runner
) -> list[list[RecordedCheck]]:
    """The comparisons of each call, but for calls that an original model refuses.

    Models demand more of sizes than their graphs say: a mask has to be as long as the text behind
    it. Where a call is refused, sizes that are all the same but for one are tried too.
    """
    made, refusals = [], []
    drawn = _sizes_that_fit(function, contents.limits, sizes_of(function))
    if not drawn:
        raise _unfit(function)
    for sizes in drawn:
        try:
            made.append(_comparisons(contents, function, sizes, model))
        except CallRefused as error:
            refusals.append(error)
    if refusals:
        alike = _sizes_that_fit(function, contents.limits, _alike(function))
        for sizes in alike:
            with suppress(CallRefused):
                made.append(_comparisons(contents, function, sizes, model))
    if not made:
        raise refusals[0]
    floats = [one.expected for each in made for one in each if one.expected.dtype.kind not in "biu"]
    if floats and not any(array.any() for array in floats):
        made += _calls_of_lengths(contents, function, model)
    return made


def _calls_of_lengths(
    contents: Contents, function: NamedGraph, model: Runner
) -> Iterator[list[RecordedCheck]]:
    """Comparisons with larger whole numbers: lengths, perhaps, behind which all is masked."""
    dims = [dim for kind in function.input_types.values() for dim in kind.shape]
    for sizes in _sizes_that_fit(function, contents.limits, _alike(function)):
        most = max((dim.size(sizes) for dim in dims), default=0)
        with suppress(CallRefused, IndexError, ValueError):
            yield _comparisons(contents, function, sizes, model, most)


def _comparisons(
    contents: Contents, function: NamedGraph, sizes: Mapping[str, int], model: Runner, most: int = 0
) -> list[RecordedCheck]:
    """The comparisons of one call, one for each output; whole numbers are drawn up to ``most``."""
    call = RecordedCall(function.name, _inputs(function, sizes, contents.limits, most))
    sized = "".join(f", {name} {size}" for name, size in sizes.items())
    allowed = map(partial(tolerance, function.graph), function.graph.outputs)
    expected = model.run(call.entry, call.inputs, None).items()
    return [
        RecordedCheck(f"{call.entry}{sized}: {name}", [call], name, array, error)
        for (name, array), error in zip(expected, allowed, strict=True)
    ]


def has_thresholds(contents: Contents) -> bool:
    """Return whether the graphs round to whole numbers, so that small errors become steps."""
    graphs = (inner for graph in contents.graphs for inner in nested(graph, set()))
    nodes = (node for graph in graphs for node in graph.nodes)
    return any(isinstance(node, Node) and node.op == "round" for node in nodes)


def _sizes_that_fit(
    function: NamedGraph, limits: Mapping[str, Limit], drawn: Iterable[Mapping[str, int]]
) -> Sequence[Mapping[str, int]]:
    """The sizes for each call, with which all holds that the graph claims of them."""
    claims, least = claims_of(function.graph), _least(function)
    found = (fitting(within(sizes, limits), claims) for sizes in drawn)
    fit = [
        one
        for one in found
        if one is not None
        and within(one, limits) == one
        and all(one[name] >= size for name, size in least.items())
    ]
    return [one for at, one in enumerate(fit) if one not in fit[:at]]


def _unfit(function: NamedGraph) -> ConfigurationError:
    """The error of a graph whose claims no sizes fulfil."""
    listed = ", ".join(f"{left} is {right}" for left, right in claims_of(function.graph))
    hint = "--shape NAME=SIZES says sizes that fit"
    return ConfigurationError(f"no sizes to check with are found: {listed:.300}", hint=hint)


def within(sizes: Mapping[str, int], limits: Mapping[str, Limit]) -> dict[str, int]:
    """Sizes, none of them above its limit."""
    known = {name: limit for name, limit in limits.items() if isinstance(limit, int)}
    return {name: min(size, known.get(name, size)) for name, size in sizes.items()}


def tolerance(graph: Graph, output: Tensor) -> Tolerance:
    """Return the error that is allowed, by the narrowest floats that an output follows from."""
    types = {value.dtype for value in _sources(graph, output)}
    floats = [dtype for dtype in types if dtype.is_float() and dtype is not DType.float8_e8m0fnu]
    digits = min(map(_digits, floats), default=24)
    share = next((SHARES[most] for most in sorted(SHARES) if digits <= most), USUAL)
    return Tolerance(share, ROUNDING)


def _digits(dtype: DType) -> int:
    """The binary digits of the numbers of a float type."""
    limits: Any = ml_dtypes.finfo(dtype.to_numpy())  # type: ignore[no-untyped-call]
    return int(limits.nmant) + 1


def _sources(graph: Graph, output: Tensor) -> Iterator[Tensor]:
    """The output, and all values that it follows from, those of subgraphs too."""
    needed = {id(output)}
    yield output
    for node in reversed(graph.nodes):
        if needed.isdisjoint(map(id, node.outputs)):
            continue
        operands = [*node.inputs, *(node.weights if isinstance(node, CallNode) else ())]
        needed.update(map(id, operands))
        yield from (*node.outputs, *operands)
        if isinstance(node, CallNode):
            for callee in nested(node.callee, set()):
                yield from (value for inner in callee.nodes for value in inner.outputs)


def _least(function: NamedGraph) -> dict[str, int]:
    """The least sizes of the named dimensions."""
    kinds = function.input_types.values()
    names = dict.fromkeys(name for kind in kinds for dim in kind.shape for name in dim.names())
    return {name: function.least.get(name, 1) for name in names}


def _alike(function: NamedGraph) -> Iterator[dict[str, int]]:
    """The same size for all named dimensions, and then twice as much and more for one of them."""
    least = _least(function)
    size = max((SIZES[0], *least.values()))
    alike = dict.fromkeys(least, size)
    larger = (2 * size, max(MANY, size), max(LONG, size))
    others = (alike | {name: one} for name in least for one in larger)
    for sizes in (alike, *others):
        if _elements(function.graph, sizes) <= MOST_ELEMENTS:
            yield sizes


def sizes_of(function: NamedGraph) -> Iterator[dict[str, int]]:
    """Sizes of the named dimensions for each call; one call where there are none."""
    least = names = _least(function)
    yield {name: max(size, 1) for name, size in least.items()}
    for round_ in range(2 if names else 0):
        # Neighbours differ, so that sizes that are taken for each other are noticed.
        usual = {
            name: max(SIZES[(round_ + index) % 2] + index // 2, least[name] + 1)
            for index, name in enumerate(names)
        }
        yield usual
    # One at a time, as there is nothing to compare where all of it is empty.
    yield from (usual | {name: 0} for name, size in least.items() if not size)
    # One at a time, so that they are not multiplied.
    many = (usual | {name: max(MANY, least[name] + 1)} for name in names)
    yield from (sizes for sizes in many if _elements(function.graph, sizes) <= MOST_ELEMENTS)


def _elements(graph: Graph, sizes: Mapping[str, int]) -> int:
    """The elements of what a graph computes, but for what has a size of its own."""
    values = (value for node in graph.nodes for value in node.outputs)
    shapes = [[*value.shape] for value in values]
    known = (shape for shape in shapes if all({*dim.names()} <= {*sizes} for dim in shape))
    return sum(prod(dim.size(sizes) for dim in shape) for shape in known)


def drawn(limit: Limit | None, most: int = 0) -> tuple[int, int]:
    """The least and the largest whole number that is drawn for an input.

    They are the usual ones, or with ``most`` in the upper half of what is below that.
    """
    low, high = (most // 2, most) if most else WHOLE_NUMBERS
    if isinstance(limit, tuple):
        high = min(high, limit[1])
        low = min(max(low, limit[0]), high)
    return low, high


def _inputs(
    function: NamedGraph, sizes: Mapping[str, int], limits: Mapping[str, Limit], most: int
) -> dict[str, Array]:
    random = np.random.default_rng(zlib.crc32(f"{function.name} {dict(sizes)}".encode()))
    return {
        name: values(
            kind.dtype,
            [dim.size(sizes) for dim in kind.shape],
            drawn(limits.get(name), most),
            random,
        )
        for name, kind in function.input_types.items()
    }
