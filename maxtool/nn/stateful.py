"""``Stateful``: the tree of modules as its users see it, and its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from maxtool.errors import MissingWeight
from maxtool.graph import DeviceRef, ShardingStrategy, Tensor, Weight
from maxtool.graph.weight import Family
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.placement import place

if TYPE_CHECKING:
    from maxtool.nn.module import Module

# Attributes that are the module system's own.
BOOKKEEPING = ("_shared_weights", "_device")
# Slots that hold none.
NO_ATTRIBUTES = ("__dict__", "__weakref__")


class Stateful:
    """What a module is besides something to call: weights, children that have more, their values.

    It is the base of :class:`maxtool.nn.Module` and of nothing else.

    Attributes:
        lists_every_path: Whether what stands in several places of the tree is listed under each of
            their names, not under the first.
        holds_containers: Whether what stands in plain lists and dicts is found too.
        may_be_undefined: Whether there are instances of classes that do not say what they compute.
    """

    lists_every_path: ClassVar[bool] = False
    holds_containers: ClassVar[bool] = False
    may_be_undefined: ClassVar[bool] = False

    def tree_items(self) -> Iterator[tuple[str, Any]]:
        """Attributes by name, without the module's own bookkeeping. A list adds its items."""
        kind: Any = type(self)
        for name in _slots(kind):
            if hasattr(self, name):
                yield name, getattr(self, name)
        for name, value in vars(self).items():
            if name not in BOOKKEEPING:
                yield name, value

    @property
    def shared_weights(self) -> Mapping[str, Weight]:
        """The weights that belong to another module, by attribute."""
        found: Mapping[str, Weight] = vars(self).get("_shared_weights", {})
        return found

    @property
    def sublayers(self) -> dict[str, Module[..., Any]]:
        """The direct children by name."""
        return dict(tree.children(self))

    @property
    def layer_weights(self) -> dict[str, Weight]:
        """The weights set on this very layer by attribute, shared ones included."""
        return {name: value for name, value in self.tree_items() if isinstance(value, Weight)}

    @property
    def children(self) -> Iterable[tuple[str, Module[..., Any]]]:
        """``(name, module)`` of each direct child."""
        return tree.children(self)

    @property
    def descendants(self) -> Iterable[tuple[str, Module[..., Any]]]:
        """``(path, module)`` of each child and of theirs, depth first."""
        return ((path, module) for path, module in tree.modules(self) if module is not self)

    def named_modules(self) -> Iterable[tuple[str, Module[..., Any]]]:
        """``(prefix, module)`` of this module and all below it, depth first.

        A prefix is what the names of a module's parameters begin with: empty, or with a dot at its
        end.
        """
        return ((f"{path}." if path else "", module) for path, module in tree.modules(self))

    def replace_module(self, name: str, module: Module[..., Any]) -> None:
        """Put another module where ``name`` leads to one.

        Raises:
            KeyError: If no module is there.
        """
        tree.replace(self, name.removesuffix("."), module)

    @property
    def local_parameters(self) -> Iterable[tuple[str, Tensor]]:
        """``(name, tensor)`` of each tensor this very module owns."""
        return ((leaf.name, leaf.tensor) for leaf in tree.local_leaves(self))

    @property
    def parameters(self) -> Iterable[tuple[str, Tensor]]:
        """``(path, tensor)`` of each tensor of the tree, depth first."""
        return ((leaf.name, leaf.tensor) for leaf in tree.leaves(self))

    def set_shared_weight(self, name: str, weight: Weight) -> None:
        """Set ``weight``, which another module owns, as the attribute ``name``.

        States list it once, under its owner's name. What the attribute is set to later is this
        module's own again.

        Raises:
            TypeError: If it is no ``Weight``.
        """
        if not isinstance(weight, Weight):
            raise TypeError(f"a Weight can be shared, not a {type(weight).__name__}")
        object.__setattr__(self, "_shared_weights", {**self.shared_weights, name: weight})
        setattr(self, name, weight)

    # Devices

    def to(self, *devices: DeviceRef, sharding_strategy: ShardingStrategy | None = None) -> None:
        """Put every weight on a device, or split it over several.

        States list whole weights all the same. A layer that knows how to compute with the parts of
        its weights does so, each part on its device; any other finds its weights whole on the first
        one. ``Weight.shard(device)`` is a device's part.

        Args:
            devices: Where to: all different.
            sharding_strategy: How weights are split; needed for more than one device.

        Raises:
            TypeError: If something is no device.
            ValueError: If devices and strategy do not fit each other, or listing the weights that
                cannot be split so; nothing has changed then.
        """
        place(self, devices, sharding_strategy)

    def sharding_of(
        self,
        name: str,  # noqa: ARG002 - for those who override it
        weight: Weight,
        strategy: ShardingStrategy,
    ) -> ShardingStrategy:
        """How the weight at the attribute ``name`` is split when the module is to be split so.

        A weight without the dimension in question is whole on every device.
        """
        fits = strategy.axis is not None and strategy.axis < weight.shape.rank
        return strategy if fits else ShardingStrategy.replicate(strategy.num_devices)

    # The state

    def raw_state_dict(self) -> dict[str, Weight]:
        """Every weight by full name, to look at or to change before a graph is built."""
        return {
            leaf.name: leaf.tensor for leaf in tree.leaves(self) if isinstance(leaf.tensor, Weight)
        }

    def state_dict(self, auto_initialize: bool = True) -> dict[str, Any]:
        """Every value by full name; the weights take those names from here on.

        What was loaded is given back as it was: arrays and tensors alike.

        Args:
            auto_initialize: Whether a weight without data becomes zeros. Else it is an error.

        Raises:
            MissingWeight: Naming every weight that has no data, or none and a size that is symbolic
                (also a ValueError).
        """
        self.finalize_names()
        weights = self.raw_state_dict()
        unset = {name: weight for name, weight in weights.items() if not weight.is_bound}
        if unset and not auto_initialize:
            raise MissingWeight("weights have no data", problems=list(unset))
        states.initialize(unset)
        return {leaf.name: states.value_of(leaf.tensor) for leaf in tree.leaves(self)}

    def load_state_dict(
        self,
        state_dict: Mapping[str, states.Value],
        *,
        override_quantization_encoding: bool = False,
        weight_alignment: int | None = None,
        strict: bool = True,
    ) -> None:
        """Take every value from ``state_dict``: all of them, or none if anything is wrong.

        Args:
            state_dict: Values by full name. They are kept, not copied.
            override_quantization_encoding: Take the encoding of the values instead of comparing.
            weight_alignment: The alignment in bytes to ask of every value, and to record.
            strict: Whether every name must be in both; else only the names in both are loaded.

        Raises:
            MissingWeight: If a name is missing (also a KeyError and a ValueError).
            UnexpectedWeight: If a name is not used (also a ValueError).
            MisshapenWeight: If a value has another dtype, shape, encoding or alignment.
        """
        leaves = {leaf.name: leaf for leaf in tree.leaves(self)}
        found = states.fitting(
            leaves.values(),
            state_dict,
            strict=strict,
            override_encoding=override_quantization_encoding,
            align=weight_alignment,
        )
        self.finalize_names()
        for name, given in found.items():
            states.assign(leaves[name], given, weight_alignment)

    def load_state(self, lookup: Callable[..., states.Value]) -> None:
        """Take every value from ``lookup(name)`` or ``lookup(name, tensor)``, all or none.

        Args:
            lookup: From a parameter's full path, and its present value if it cannot be called with
                the path alone, to the new value. What it raises passes through, and nothing has
                changed then.

        Raises:
            MisshapenWeight: If a value has another dtype or shape.
        """
        alone = _takes_one(lookup)
        values = {
            leaf.name: lookup(leaf.name) if alone else lookup(leaf.name, leaf.tensor)
            for leaf in tree.leaves(self)
        }
        self.load_state_dict(values)

    def finalize_names(self) -> None:
        """Name every weight by its full path, so that a graph holds each under its own name."""
        family = _family_of(self)
        for name, weight in self.raw_state_dict().items():
            weight.name, weight.family = name, family


def _family_of(root: Stateful) -> Family:
    """The weights of a tree for as long as there is the tree, which they do not keep."""
    reference = ref(root)

    def weights() -> Mapping[str, Weight]:
        module = reference()
        return {} if module is None else module.raw_state_dict()

    return weights


def _takes_one(lookup: Callable[..., Any]) -> bool:
    """Whether a lookup can be called with the name alone; one without a signature can.

    Raises:
        TypeError: If it cannot be called.
    """
    if not callable(lookup):
        kind = type(lookup).__name__
        raise TypeError(f"load_state takes a function of a name, not a {kind}: see load_state_dict")
    try:
        signature = inspect.signature(lookup)
    except ValueError:
        return True
    try:
        signature.bind("")
    except TypeError:
        return False
    return True


@cache
def _slots(kind: type) -> tuple[str, ...]:
    """The attributes that a class and its bases keep in slots, as dataclasses may."""
    declared = [vars(base).get("__slots__", ()) for base in reversed(kind.__mro__)]
    listed = [(names,) if isinstance(names, str) else tuple(names) for names in declared]
    return tuple(name for names in listed for name in names if name not in NO_ATTRIBUTES)
