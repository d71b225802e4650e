"""``Module`` in the eager style, and dataclasses that are modules."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, TypeVar, dataclass_transform, overload

from maxtool.graph import Tensor, TensorType
from maxtool.graph.device import CPU, Device, DeviceRef
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.base import ModuleBase
from maxtool.nn.called import P, R
from maxtool.nn.eager import rendering
from maxtool.nn.tree import RESERVED, Style

C = TypeVar("C", bound="type[Module[..., Any]]")
Transform = Callable[[str, Tensor], Tensor]


DEVICE = f"{RESERVED}device"


class Module(ModuleBase[P, R]):
    """A tree of layers whose parameters are tensors that hold data.

    It differs from ``maxtool.nn.Module``: every name must be in a state that is loaded, parameters
    are replaced rather than filled, and a module is moved and mapped as a whole. A subclass defines
    :meth:`forward`, or ``__call__``.
    """

    _maxtool_style = Style(lists_every_path=True, holds_containers=True, may_be_undefined=True)

    # The tree

    @property
    def children(self) -> Iterable[tuple[str, Module[..., Any]]]:
        """``(name, module)`` of each direct child."""
        return tree.children(self)

    @property
    def descendants(self) -> Iterable[tuple[str, Module[..., Any]]]:
        """``(path, module)`` of each child and of theirs, depth first."""
        return tree.descendants(self)

    descendents = descendants  # the older spelling

    @property
    def local_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """``(name, tensor)`` of each tensor this very module owns."""
        return ((leaf.name, leaf.tensor) for leaf in tree.local_leaves(self))

    @property
    def parameters(self) -> Iterable[tuple[str, Tensor]]:
        """``(path, tensor)`` of each tensor of the tree, depth first."""
        return ((leaf.name, leaf.tensor) for leaf in tree.leaves(self))

    # The state

    def load_state_dict(self, state: Mapping[str, states.Value], strict: bool = True) -> None:
        """Take the value of every parameter from ``state``: all of them, or none.

        Values are kept, not copied.

        Args:
            state: Values by full name.
            strict: Whether names that no parameter has are an error.

        Raises:
            MissingWeight: If a parameter is not in it, strict or not (also a KeyError).
            UnexpectedWeight: If ``strict`` and a name is not used (also a ValueError).
            MisshapenWeight: If a value has another dtype or shape (also a ValueError).
        """
        names = {leaf.name for leaf in tree.leaves(self)}
        fitting = state if strict else {name: state[name] for name in state if name in names}
        states.load(self, fitting, align=1)

    def load_state(self, lookup: Callable[..., states.Value] | Mapping[str, states.Value]) -> None:
        """Take every value from ``lookup(name)`` or ``lookup(name, tensor)``, all or none.

        Args:
            lookup: From a parameter's full path, and its present value if it cannot be called with
                the path alone, to the new value. What it raises passes through, and nothing has
                changed then. A mapping is taken as :meth:`load_state_dict` takes it.

        Raises:
            MisshapenWeight: If a value has another dtype or shape.
        """
        if isinstance(lookup, Mapping):
            states.load(self, lookup, align=1)
            return
        alone = _takes_one(lookup)
        values = {
            leaf.name: lookup(leaf.name) if alone else lookup(leaf.name, leaf.tensor)
            for leaf in tree.leaves(self)
        }
        states.load(self, values, align=1)

    def apply_to_local_parameters(self, f: Transform) -> None:
        """Replace each parameter of this very module by ``f(name, tensor)``.

        Nothing has changed when ``f`` raises.

        Raises:
            TypeError: If ``f`` returns something that is not a tensor.
        """
        _replace(tree.local_leaves(self), f)

    def apply_to_parameters(self, f: Transform) -> None:
        """Replace each parameter of the tree by ``f(path, tensor)``.

        Nothing has changed when ``f`` raises.

        Raises:
            TypeError: If ``f`` returns something that is not a tensor.
        """
        _replace(tree.leaves(self), f)

    def map_parameters(self, f: Transform) -> Self:
        """A copy of the module with each parameter replaced by ``f(path, tensor)``.

        Raises:
            TypeError: If ``f`` returns something that is not a tensor.
        """
        # Tensors are not copied: each is about to be replaced.
        shared = {id(leaf.tensor): leaf.tensor for leaf in tree.leaves(self)}
        copy = deepcopy(self, dict(shared))
        _replace(tree.leaves(copy), f)
        return copy

    # Devices

    @property
    def device(self) -> DeviceRef:
        """Device of the parameters and the computation; the host unless the module was moved."""
        found: DeviceRef = vars(self).get(DEVICE, CPU())
        return found

    @device.setter
    def device(self, device: DeviceRef) -> None:
        vars(self)[DEVICE] = device

    def to(self, device: Device) -> Self:
        """Move every parameter to ``device``, in place, and return the module.

        Raises:
            TypeError: If it is not a device.
            MissingDevice: If this machine has no such device (also a ValueError).
        """
        if not isinstance(device, DeviceRef):
            raise TypeError(f"a module is moved to a device such as CPU(), not {device!r}")
        _replace(tree.leaves(self), lambda _, tensor: tensor.to(device))
        for _, module in tree.modules(self):
            if isinstance(module, Module):
                object.__setattr__(module, "device", device)  # of a frozen dataclass too
        return self

    def input_types(self) -> Sequence[TensorType]:
        """The types to compile for, on :attr:`device`; a subclass says them.

        Raises:
            NotImplementedError: If the subclass does not.
        """
        name = type(self).__name__
        raise NotImplementedError(f"{name} does not say its input types: pass them to compile()")

    def __rich_repr__(self) -> rendering.Parts:
        """The parts of it that are printed, as `rich` asks for them; a subclass may give others."""
        return rendering.parts_of(self)

    def __repr__(self) -> str:
        is_tree = type(self).__rich_repr__ is Module.__rich_repr__
        return rendering.described(self, self.__rich_repr__(), is_tree=is_tree)


def _takes_one(lookup: Callable[..., Any]) -> bool:
    """Return whether a lookup can be called with the name alone; one without a signature can."""
    if not callable(lookup):
        type_name = type(lookup).__name__
        raise TypeError(
            f"load_state takes a function of a name, not a {type_name}: see load_state_dict"
        )
    try:
        signature = inspect.signature(lookup)
    except ValueError:
        return True
    try:
        signature.bind("")
    except TypeError:
        return False
    return True


def _replace(leaves: Iterable[tree.Leaf], f: Transform) -> None:
    """Ask ``f`` for every tensor first, then set them."""
    new = [(leaf, f(leaf.name, leaf.tensor)) for leaf in leaves]
    wrong = [
        f"{leaf.name!r}: a {type(tensor).__name__}"
        for leaf, tensor in new
        if not isinstance(tensor, Tensor)
    ]
    if wrong:
        raise TypeError(f"a parameter is replaced by a tensor, not by {', '.join(wrong)}")
    for leaf, tensor in new:
        leaf.replace(tensor)


@overload
def module_dataclass(cls: C, /, *, repr: bool = ..., **kwargs: object) -> C: ...
@overload
def module_dataclass(
    cls: None = None, /, *, repr: bool = ..., **kwargs: object
) -> Callable[[C], C]: ...
@dataclass_transform()
def module_dataclass(
    cls: C | None = None,
    /,
    *,
    repr: bool = False,  # noqa: A002 - the reference API's name
    **kwargs: Any,
) -> C | Callable[[C], C]:
    """Make a dataclass of a ``Module`` subclass; with or without parentheses.

    Args:
        cls: The class.
        repr: Whether it prints as dataclasses do, not as modules do.
        kwargs: What :func:`dataclasses.dataclass` takes. Modules compare by identity (``eq`` is
            false) unless said.
    """

    def decorate(cls: C) -> C:
        decorated: Any = dataclasses.dataclass(repr=repr, **{"eq": False, **kwargs})(cls)
        result: C = decorated
        return result

    return decorate if cls is None else decorate(cls)
