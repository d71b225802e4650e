"""The one walk over a tree of modules: who its children are, and which tensors it owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeAlias

from maxtool.graph import DerivedWeight, Tensor, Weight

# A path and a module of either style; who asks knows which.
Named: TypeAlias = tuple[str, Any]

# What the names of the package's own attributes of modules begin with; all others are the user's.
RESERVED = "_maxtool_"
SHARED = f"{RESERVED}shared_weights"
# Slots that hold no attributes.
NO_ATTRIBUTES = ("__dict__", "__weakref__")


@dataclass(frozen=True, slots=True)
class Style:
    """Traits in which the styles of the module API differ."""

    # Whether what stands in several places of the tree is listed under all names, not the first.
    lists_every_path: bool = False
    # Whether what stands in plain lists and dicts is found too.
    holds_containers: bool = False
    # Whether there are instances of classes that do not say what they compute.
    may_be_undefined: bool = False


class Node:
    """Base class of a tree's nodes: the modules, and nothing else, are derived from it."""

    _maxtool_style: ClassVar[Style] = Style()


def style_of(type_: type[Node]) -> Style:
    """The style of a class of modules."""
    return type_._maxtool_style


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor of a module tree."""

    name: str  # its full path, the weight's own name being the last part
    owner: Node
    attribute: str  # of the owner, which it is or which leads to it
    tensor: Tensor
    keys: tuple[Any, ...] = ()  # where it is in the plain lists and dicts of that attribute

    def replace(self, tensor: Tensor) -> None:
        """Replace the tensor."""
        _put(self.owner, (self.attribute, *self.keys), tensor)


def _put(owner: Node, keys: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401 - tensor, module
    """Set the value at the end of a chain of keys, in a frozen dataclass too."""
    name, *inner = keys
    if isinstance(owner, list) and name.isdecimal():
        owner[int(name)] = value
        return
    container = getattr(owner, name) if inner else None
    object.__setattr__(owner, name, _with(container, inner, value))


def _with(container: Any, keys: Sequence[Any], value: Any) -> Any:  # noqa: ANN401 - lists, dicts
    """A container with the value at ``keys``, changed in place; the value if there are none."""
    if keys:
        container[keys[0]] = _with(container[keys[0]], keys[1:], value)
    return container if keys else value


def items(module: Node) -> Iterator[tuple[str, Any]]:
    """The items of a list by position, then the attributes by name, without the package's own."""
    if isinstance(module, list):
        yield from ((str(index), item) for index, item in enumerate(module))
    module_type: Any = type(module)
    for name in _slots(module_type):
        if hasattr(module, name):
            yield name, getattr(module, name)
    for name, value in vars(module).items():
        if not name.startswith(RESERVED):
            yield name, value


@cache
def _slots(type_: type) -> tuple[str, ...]:
    """The attributes that a class and its bases keep in slots, as dataclasses may."""
    declared = [vars(base).get("__slots__", ()) for base in reversed(type_.__mro__)]
    listed = [(names,) if isinstance(names, str) else tuple(names) for names in declared]
    return tuple(name for names in listed for name in names if name not in NO_ATTRIBUTES)


def weights(module: Node) -> dict[str, Weight]:
    """The weights set on this very module by attribute, shared ones included."""
    return {name: value for name, value in items(module) if isinstance(value, Weight)}


def shared(module: Node) -> Mapping[str, Weight]:
    """The weights that belong to another module, by attribute."""
    shared_weights: Mapping[str, Weight] = vars(module).get(SHARED, {})
    return shared_weights


def share(module: Node, name: str, weight: Weight) -> None:
    """Set a weight that belongs to another module as an attribute."""
    vars(module)[SHARED] = {**shared(module), name: weight}
    object.__setattr__(module, name, weight)  # in a frozen dataclass too


def children(module: Node) -> Iterator[Named]:
    """The direct children in the order they were set: attributes, and the items of a list."""
    return ((name, value) for name, value in items(module) if isinstance(value, Node))


def held(module: Node) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the values a module holds, with the attribute and the keys that lead to each.

    Where the module says so, what stands in its plain lists and dicts is held too.
    """
    inside = style_of(type(module)).holds_containers
    for name, value in items(module):
        yield from _inside((name,), value, ()) if inside else [((name,), value)]


def _inside(
    keys: tuple[Any, ...],
    value: Any,  # noqa: ANN401 - any attribute
    above: tuple[int, ...],
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Node) or not isinstance(value, list | dict):
        yield keys, value
    elif id(value) not in above:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inside((*keys, key), item, (*above, id(value)))


def modules(root: Node, prefix: str = "") -> Iterator[Named]:
    """``root`` and all below it, depth first, under the paths that lead there.

    Paths have no dot at the end; that of ``root`` is ``prefix``. A module that several paths lead
    to has the first of them only, or each, as ``root`` says; one that leads back to itself is not
    entered again.
    """
    every = style_of(type(root)).lists_every_path
    seen: set[int] = set()
    above: frozenset[int] = frozenset()
    pending = [(prefix, root, above)]
    while pending:
        path, module, above = pending.pop()
        if id(module) in (above if every else seen):
            continue
        seen.add(id(module))
        yield path, module
        inner = above | {id(module)}
        below = [(keys, one) for keys, one in held(module) if isinstance(one, Node)]
        pending.extend((_path(path, keys), child, inner) for keys, child in reversed(below))


def descendants(root: Node) -> Iterator[Named]:
    """All modules below ``root``, depth first, under the paths that lead there."""
    return ((path, module) for path, module in modules(root) if module is not root)


def replace(root: Node, path: str, module: Node) -> None:
    """Replace the module at a path below ``root``."""
    for prefix, owner in modules(root):
        for keys, value in held(owner):
            if isinstance(value, Node) and _path(prefix, keys) == path:
                _put(owner, keys, module)
                return
    known = ", ".join(repr(name) for name, _ in modules(root) if name) or "none"
    raise KeyError(f"no module {path!r}: there are {known}")


def local_leaves(module: Node, path: str = "") -> Iterator[Leaf]:
    """The tensors that ``module`` itself owns.

    Shared weights belong to their owner, and derived ones to nobody.
    """
    for keys, value in held(module):
        borrowed = shared(module).get(keys[0]) is value
        if isinstance(value, Tensor) and not isinstance(value, DerivedWeight) and not borrowed:
            alone = len(keys) == 1
            parts = (value.local_name,) if isinstance(value, Weight) and alone else keys
            yield Leaf(_path(path, parts), module, keys[0], value, keys[1:])


def leaves(root: Node, prefix: str = "") -> Iterator[Leaf]:
    """Every tensor of the tree: the module's own first, then those of its children, depth first."""
    found: dict[str, Leaf] = {}
    for path, module in modules(root, prefix):
        for leaf in local_leaves(module, path):
            first = found.setdefault(leaf.name, leaf)
            if first is leaf:
                yield leaf
            elif first.tensor is not leaf.tensor:
                both = f"{first.attribute!r} and {leaf.attribute!r}"
                raise ValueError(f"two tensors are named {leaf.name!r}: attributes {both}")


def join(path: str, name: str) -> str:
    """Two parts of a path with a dot between them, unless one is empty."""
    return f"{path}.{name}" if path and name else path or name


def _path(path: str, keys: tuple[Any, ...]) -> str:
    for key in keys:
        path = join(path, str(key))
    return path
