"""Graphs as functions of arrays alone: without state, on one device, of sizes that are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from maxtool.artifact.contents import NamedGraph
from maxtool.errors import ModelMismatch
from maxtool.graph import BufferType, CallNode, Dim, Graph
from maxtool.graph.limits import devices, least_sizes
from maxtool.runtime.loader.specs import is_name

WRITING = ("cache_write_key", "cache_write_value", "slot_write_key", "slot_write_value")
POSITIONED = frozenset({"attention", "slot_attention", *WRITING})
"""Operations that read or write at a position, which is checked for decoders only."""
MOST_COMMON = 4096
"""Sizes of inputs are raised up to this one for what follows from several of them."""


def pure_function(
    name: str,
    symbol: str,
    graph: Graph,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    may_be_empty: bool = False,
) -> NamedGraph:
    """A graph as a function of an artifact; an error lists all that keeps it from being one.

    ``may_be_empty`` says that sizes of inputs are 0 or more where the graph asks for no more.
    """
    least = _met(graph, _floors(graph, 0 if may_be_empty else 1) | least_sizes(graph))
    problems = [
        *([] if graph.inputs else ["it takes no inputs"]),
        *_buffers(graph, inputs),
        *_positions(graph),
        *_several_devices(graph),
        *_empty(graph, [*inputs, *outputs]),
        *_unchecked(graph, least),
        *_unnamed(inputs, outputs),
        *(f"two of its inputs are named {name!r}" for name in _repeated(inputs)),
        *(f"two of its outputs are named {name!r}" for name in _repeated(outputs)),
    ]
    if problems:
        raise ModelMismatch(f"{name} cannot be kept as a function of arrays", problems=problems)
    named = {dim.value: size for dim, size in least.items() if isinstance(dim.value, str)}
    unusual = {size_name: size for size_name, size in named.items() if size != 1}
    return NamedGraph(name, symbol, graph, tuple(inputs), tuple(outputs), least=unusual)


def _floors(graph: Graph, least: int) -> dict[Dim, int]:
    """The least size of each name that the inputs have, if nothing is demanded of it."""
    names = (name for value in graph.inputs for dim in value.shape for name in dim.names())
    return {Dim(name): least for name in names}


def _buffers(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    for name, value in zip(names, graph.inputs, strict=True):
        if isinstance(value.type, BufferType):
            yield f"its input {name!r} is written in place: return the new values instead"


def _positions(graph: Graph) -> Iterator[str]:
    used = {
        node.op
        for callee in nested(graph, set())
        for node in callee.nodes
        if not isinstance(node, CallNode)
    }
    for op in sorted(used & POSITIONED):
        yield f"it uses ops.{op}, whose positions only the entries of a decoder have checked"


def nested(graph: Graph, seen: set[int]) -> Iterator[Graph]:
    """The graph and those that it calls, each once."""
    if id(graph) in seen:
        return
    seen.add(id(graph))
    yield graph
    for node in graph.nodes:
        if isinstance(node, CallNode):
            yield from nested(node.callee, seen)


def _several_devices(graph: Graph) -> Iterator[str]:
    if len(named := sorted(device.name for device in devices(graph))) > 1:
        yield f"it computes on {', '.join(named)}, and an artifact is for one device"


def _empty(graph: Graph, names: Sequence[str]) -> Iterator[str]:
    weights = graph.weight_values.items()
    values = [*zip(names, (*graph.inputs, *graph.outputs), strict=True), *weights]
    for name, value in values:
        if any(dim.value == 0 for dim in value.shape):
            yield f"{name!r} is {value.type}, which has no elements"


def _met(graph: Graph, least: dict[Dim, int]) -> dict[Dim, int]:
    """The least sizes, with sizes of the inputs so large that what follows from several is too.

    The first dimension of inputs counts images or texts: it stays free where others suffice. Some
    sizes that would fit are refused then, a low and very wide image, but none that do not.
    """
    shapes = [[str(dim.value) for dim in value.shape] for value in graph.inputs]
    known = dict.fromkeys(name for shape in shapes for name in shape)
    counts = {shape[0] for shape in shapes if shape}
    met = dict(least)
    for dim, size in least.items():
        names = {*dim.names()}
        if str(dim.value) in known or not names <= {*known} or _suffices(dim, size, met):
            continue
        for free in (counts, {*()}):
            inside = [name for name in known if name in names - free]
            raised = _enough(dim, size, inside, met)
            if raised is not None:
                met |= raised
                break
    return met


def _enough(
    dim: Dim, size: int, names: Iterable[str], least: dict[Dim, int]
) -> dict[Dim, int] | None:
    """The least sizes of some names with which a dimension is large enough; None if none are.

    One element of a single name may suffice, as of a text behind an empty cache; else it is the
    same size for all of them.
    """
    usual = {Dim(name): least.get(Dim(name), 1) for name in names}
    for name in usual:
        if _suffices(dim, size, one := least | {name: max(1, usual[name])}):
            return one
    for common in range(1, MOST_COMMON):
        raised = least | {name: max(common, low) for name, low in usual.items()}
        if _smallest(dim, raised) >= size:
            return raised if _suffices(dim, size, raised) else None
    return None


def _suffices(dim: Dim, size: int, least: dict[Dim, int]) -> bool:
    """Return whether a dimension is large enough with these sizes, and with larger ones."""
    larger = (least | {Dim(name): MOST_COMMON**2} for name in dim.names())
    return all(_smallest(dim, one) >= size for one in (least, *larger))


def _unchecked(graph: Graph, least: dict[Dim, int]) -> Iterator[str]:
    """A line for each demand on sizes that is not one on the size of an input."""
    known = {str(dim.value) for value in graph.inputs for dim in value.shape}
    for dim, size in least.items():
        if str(dim.value) not in known and _smallest(dim, least) < size:
            yield f"it needs {dim} to be at least {size}, which nothing checks before a call"


def _smallest(dim: Dim, least: dict[Dim, int]) -> int:
    """A lower bound of a size, where names without one are at least 1; 0 if it may shrink."""
    if any(factor < 0 for _, factor in dim.polynomial.terms):
        return 0
    return dim.size({name: least.get(Dim(name), 1) for name in dim.names()})


def _unnamed(inputs: Iterable[str], outputs: Iterable[str]) -> Iterator[str]:
    sides = {"input": inputs, "output": outputs}
    for side, name in ((side, name) for side, names in sides.items() for name in names):
        if not is_name(name):
            why = "a name is not empty, and has no control characters, \\ or /"
            yield f"its {side} {name!r:.80} needs another name: {why}"


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
