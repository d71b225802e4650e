"""``Module`` in the eager style, and dataclasses that are modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Self, TypeVar, dataclass_transform, overload

from maxtool.graph import Tensor, TensorType
from maxtool.graph.device import CPU, Device, DeviceRef
from maxtool.nn import module as base
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.eager import rendering
from maxtool.nn.module import P, R

C = TypeVar("C", bound="type[Module[..., Any]]")
Transform = Callable[[str, Tensor], Tensor]


class Module(base.Module[P, R]):
    """A tree of layers whose parameters are tensors that hold data.

    It is ``maxtool.nn.Module`` with another policy: every name must be in a state that is loaded,
    parameters are replaced rather than filled, and a module is moved and mapped as a whole. A
    subclass defines :meth:`forward`, or ``__call__``.
    """

    lists_every_path = True
    holds_containers = True
    may_be_undefined = True

    @property
    def descendents(self) -> Iterable[tuple[str, base.Module[..., Any]]]:
        """``(path, module)`` of each child and of theirs: the older spelling."""
        return self.descendants

    # The state

    def load_state_dict(  # type: ignore[override]  # the document's own parameters
        self, state: Mapping[str, states.Value], strict: bool = True
    ) -> None:
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
        given = state if strict else {name: state[name] for name in state if name in names}
        super().load_state_dict(given, weight_alignment=1)

    def apply_to_local_parameters(self, f: Transform) -> None:
        """Replace each parameter of this very module by ``f(name, tensor)``.

        Nothing has changed when ``f`` raises.

        Raises:
            TypeError: If ``f`` returns something that is no tensor.
        """
        _replace(tree.local_leaves(self), f)

    def apply_to_parameters(self, f: Transform) -> None:
        """Replace each parameter of the tree by ``f(path, tensor)``.

        Nothing has changed when ``f`` raises.

        Raises:
            TypeError: If ``f`` returns something that is no tensor.
        """
        _replace(tree.leaves(self), f)

    def map_parameters(self, f: Transform) -> Self:
        """A copy of the module with each parameter replaced by ``f(path, tensor)``.

        Raises:
            TypeError: If ``f`` returns something that is no tensor.
        """
        # Tensors are not copied: each is about to be replaced.
        shared = {id(tensor): tensor for _, tensor in self.parameters}
        copy = deepcopy(self, dict(shared))
        copy.apply_to_parameters(f)
        return copy

    # Devices

    @property
    def device(self) -> DeviceRef:
        """Where the parameters are and the module computes; the host unless it was moved."""
        found: DeviceRef = vars(self).get("_device", CPU())
        return found

    @device.setter
    def device(self, device: DeviceRef) -> None:
        object.__setattr__(self, "_device", device)

    def to(self, device: Device) -> Self:  # type: ignore[override]  # the document's own
        """Move every parameter to ``device``, in place, and return the module.

        Raises:
            TypeError: If it is no device.
            MissingDevice: If this machine has no such device (also a ValueError).
        """
        if not isinstance(device, DeviceRef):
            raise TypeError(f"a module is moved to a device such as CPU(), not {device!r}")
        self.apply_to_parameters(lambda _, tensor: tensor.to(device))
        for _, module in tree.modules(self):
            if isinstance(module, Module):
                module.device = device
        return self

    def input_types(self) -> Sequence[TensorType]:
        """The types to compile for, on :attr:`device`; a subclass says them.

        Raises:
            NotImplementedError: If the subclass does not.
        """
        name = type(self).__name__
        raise NotImplementedError(f"{name} does not say its input types: pass them to compile()")

    def __repr__(self) -> str:
        return rendering.described(self)


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
        made: Any = dataclasses.dataclass(repr=repr, **{"eq": False, **kwargs})(cls)
        result: C = made
        return result

    return decorate if cls is None else decorate(cls)


__all__ = ["Module", "module_dataclass"]
