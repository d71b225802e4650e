"""Repeated layers, traced once.

While a module tree is traced, a call of a layer that stands in a ``ModuleList`` becomes a call of a
subgraph. Two layers share one subgraph when they have the same signature: everything their
``forward`` may read is equal but for the names of their own weights. A layer that holds something
that cannot be compared is traced in place, and so is every layer while there are hooks, which are
to see each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from maxtool.graph import Graph, Tensor, Weight
from maxtool.nn import tree
from maxtool.nn.hooks import has_hooks
from maxtool.nn.pytree import flatten, unflatten
from maxtool.nn.tree import Node


@dataclass
class _Repeats:
    """The layers of one trace that may share a subgraph, by identity, and what was traced."""

    paths: dict[int, str]
    traced: dict[Hashable, tuple[Graph, Hashable]] = field(default_factory=dict)


_REPEATS: ContextVar[_Repeats | None] = ContextVar("maxtool_repeats", default=None)


@contextmanager
def sharing(root: Node) -> Iterator[None]:
    """Share subgraphs between the layers in the lists of ``root`` while one graph is traced."""
    lists = [(path, part) for path, part in tree.modules(root) if isinstance(part, list)]
    paths: dict[int, str] = {}
    for path, part in lists:
        for index, member in enumerate(part):
            paths.setdefault(id(member), f"{tree.join(path, str(index))}.")
    token = _REPEATS.set(_Repeats(paths))
    try:
        yield
    finally:
        _REPEATS.reset(token)


def call_shared(
    layer: Node, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bool, Any]:
    """Call ``layer`` through a subgraph if it may share one: whether it did, and the results."""
    graph, repeats = Graph.current(), _REPEATS.get()
    if graph is None or repeats is None or id(layer) not in repeats.paths or has_hooks():
        return False, None
    prefix = repeats.paths[id(layer)]
    try:
        tensors, structure = flatten((args, kwargs))
        types = tuple(tensor.type for tensor in tensors)
        key = (signature(layer, prefix, graph), types, structure)
    except TypeError:
        return False, None
    if key not in repeats.traced:
        name = f"{graph.name}_{type(layer).__name__.lower()}_{len(repeats.traced)}"
        repeats.traced[key] = _trace(name, prefix, call, tensors, structure)
    subgraph, results = repeats.traced[key]
    outputs = graph.call(subgraph, *tensors, prefix=prefix)
    return True, unflatten(results, outputs)


def _trace(
    name: str, prefix: str, call: Callable[..., Any], tensors: list[Tensor], structure: Hashable
) -> tuple[Graph, Hashable]:
    """Trace one call as a subgraph; inside it, lists are traced in place."""
    subgraph = Graph(name, input_types=[tensor.type for tensor in tensors], weight_prefix=prefix)
    token = _REPEATS.set(None)
    try:
        with subgraph:
            args, kwargs = unflatten(structure, subgraph.inputs)
            outputs, results = flatten(call(*args, **kwargs))
            subgraph.output(*outputs)
    finally:
        _REPEATS.reset(token)
    return subgraph, results


def signature(module: Node, prefix: str, graph: Graph, above: tuple[int, ...] = ()) -> Hashable:
    """All that ``forward`` may read, its weights by what follows ``prefix`` in their names."""
    if id(module) in above:
        raise TypeError(f"{type(module).__name__} contains itself")
    path = (*above, id(module))
    items = ((name, _part(value, prefix, graph, path)) for name, value in tree.items(module))
    return type(module), tuple(items)


def _part(value: Any, prefix: str, graph: Graph, above: tuple[int, ...]) -> Hashable:  # noqa: ANN401
    if isinstance(value, Node):
        return signature(value, prefix, graph, above)
    if isinstance(value, Tensor):
        return _tensor_part(value, prefix, graph)
    hash(value)
    return type(value), value


def _tensor_part(tensor: Tensor, prefix: str, graph: Graph) -> Hashable:
    if tensor.is_traced:
        raise TypeError("a traced value belongs to one graph")
    name = graph.name_of(tensor)
    if name is None or not name.startswith(prefix):
        return id(tensor)
    return name.removeprefix(prefix), tensor.type, _split(tensor)


def _split(tensor: Tensor) -> Hashable:
    """Return a hashable description of a tensor's split over devices."""
    if not isinstance(tensor, Weight):
        return ()
    return tensor.sharding_strategy, tuple(shard.device for shard in tensor.shards)
