"""The one walk over a tree of modules: who its children are, and which tensors it owns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from maxtool.graph import DerivedWeight, Tensor, Weight

if TYPE_CHECKING:
    from maxtool.nn.module import Module
    from maxtool.nn.stateful import Stateful

    Named: TypeAlias = tuple[str, Module[..., Any]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor of a module tree.

    Attributes:
        name: Its full path, the weight's own name being the last part.
        owner: The module that holds it.
        attribute: The attribute of ``owner`` that it is, or that leads to it.
        tensor: The tensor.
        keys: Where it is in the plain lists and dicts of that attribute.
    """

    name: str
    owner: Stateful
    attribute: str
    tensor: Tensor
    keys: tuple[Any, ...] = ()

    def replace(self, tensor: Tensor) -> None:
        """Put another tensor in its place."""
        _put(self.owner, (self.attribute, *self.keys), tensor)


def _put(owner: Stateful, keys: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401 - tensor, module
    """Put a value where the keys lead to, in a frozen dataclass too."""
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


def children(module: Stateful) -> Iterator[Named]:
    """The direct children in the order they were set: attributes, and the items of a list."""
    from maxtool.nn.module import Module

    for name, value in module.tree_items():
        if isinstance(value, Module):
            yield name, value


def held(module: Stateful) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What a module holds, by the attribute and the keys that lead to it.

    Where the module says so, what stands in its plain lists and dicts is held too.
    """
    for name, value in module.tree_items():
        yield from _inside((name,), value, ()) if module.holds_containers else [((name,), value)]


def _inside(
    keys: tuple[Any, ...],
    value: Any,  # noqa: ANN401 - any attribute
    above: tuple[int, ...],
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    from maxtool.nn.module import Module

    if isinstance(value, Module) or not isinstance(value, list | dict):
        yield keys, value
    elif id(value) not in above:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inside((*keys, key), item, (*above, id(value)))


def modules(root: Stateful, prefix: str = "") -> Iterator[Named]:
    """``root`` and all below it, depth first, under the paths that lead there.

    Paths have no dot at the end; that of ``root`` is ``prefix``. A module that several paths lead
    to has the first of them only, or each, as ``root`` says; one that leads back to itself is not
    entered again.
    """
    from maxtool.nn.module import Module

    seen: set[int] = set()
    above: frozenset[int] = frozenset()
    pending = [(prefix, cast("Module[..., Any]", root), above)]
    while pending:
        path, module, above = pending.pop()
        if id(module) in (above if root.lists_every_path else seen):
            continue
        seen.add(id(module))
        yield path, module
        inner = above | {id(module)}
        below = [(keys, one) for keys, one in held(module) if isinstance(one, Module)]
        pending.extend((_path(path, keys), one, inner) for keys, one in reversed(below))


def breadth_first(root: Stateful, prefix: str = "") -> Iterator[Named]:
    """``root``, its children, theirs, and so on; each once, under the first path that is found."""
    seen: set[int] = set()
    pending: deque[Named] = deque([(prefix, cast("Module[..., Any]", root))])
    while pending:
        path, module = pending.popleft()
        if id(module) not in seen:
            seen.add(id(module))
            yield path, module
            pending.extend((join(path, name), child) for name, child in children(module))


def replace(root: Stateful, path: str, module: Module[..., Any]) -> None:
    """Put another module at a path below ``root``.

    Raises:
        KeyError: If no module is there.
    """
    from maxtool.nn.module import Module

    for prefix, owner in modules(root):
        for keys, value in held(owner):
            if isinstance(value, Module) and _path(prefix, keys) == path:
                _put(owner, keys, module)
                return
    known = ", ".join(repr(name) for name, _ in modules(root) if name) or "none"
    raise KeyError(f"no module {path!r}: there are {known}")


def local_leaves(module: Stateful, path: str = "") -> Iterator[Leaf]:
    """The tensors that ``module`` itself owns.

    Shared weights belong to their owner, and derived ones to nobody.
    """
    for keys, value in held(module):
        borrowed = module.shared_weights.get(keys[0]) is value
        if isinstance(value, Tensor) and not isinstance(value, DerivedWeight) and not borrowed:
            alone = len(keys) == 1
            parts = (value.local_name,) if isinstance(value, Weight) and alone else keys
            yield Leaf(_path(path, parts), module, keys[0], value, keys[1:])


def leaves(root: Stateful, prefix: str = "") -> Iterator[Leaf]:
    """Every tensor of the tree: the module's own first, then those of its children, depth first.

    Raises:
        ValueError: If two tensors have one name.
    """
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
