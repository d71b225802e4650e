"""``Module``: a tree of layers with automatic weight tracking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from maxtool.errors import MissingWeight
from maxtool.graph import DeviceRef, Graph, ShardingStrategy, Tensor, TensorType, Weight
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.base import ModuleBase, Types
from maxtool.nn.called import P, R
from maxtool.nn.placement import place


class Module(ModuleBase[P, R]):
    """A layer, or a tree of them.

    Weights and modules set as attributes are found by themselves; ``super().__init__()`` need not
    be called. A subclass defines :meth:`forward`, or ``__call__``::

        class MLP(Module[[Tensor], Tensor]):
            def __init__(self) -> None:
                self.up = Linear(5, 10)
                self.down = Linear(10, 5)

            def forward(self, x: Tensor) -> Tensor:
                return self.down(ops.silu(self.up(x)))
    """

    # The tree

    @property
    def sublayers(self) -> dict[str, Module[..., Any]]:
        """The direct children by name."""
        return dict(tree.children(self))

    @property
    def layer_weights(self) -> dict[str, Weight]:
        """The weights set on this very layer by attribute, shared ones included."""
        return tree.weights(self)

    def named_modules(self) -> Iterable[tuple[str, Module[..., Any]]]:
        """``(prefix, module)`` of this module and all below it, depth first.

        A prefix is what the names of a module's parameters begin with: empty, or with a dot at its
        end.
        """
        return ((f"{path}." if path else "", module) for path, module in tree.modules(self))

    def replace_module(self, name: str, module: Module[..., Any]) -> None:
        """Replace the module at the path ``name``.

        Raises:
            KeyError: If no module is there.
        """
        tree.replace(self, name.removesuffix("."), module)

    def set_shared_weight(self, name: str, weight: Weight) -> None:
        """Set ``weight``, which another module owns, as the attribute ``name``.

        States list it once, under its owner's name. What the attribute is set to later is this
        module's own again.

        Raises:
            TypeError: If it is not a ``Weight``.
        """
        if not isinstance(weight, Weight):
            raise TypeError(f"a Weight can be shared, not a {type(weight).__name__}")
        tree.share(self, name, weight)

    # Devices

    def to(self, *devices: DeviceRef, sharding_strategy: ShardingStrategy | None = None) -> None:
        """Move every weight to a device, or split it over several.

        States list whole weights all the same. A layer that knows how to compute with the parts of
        its weights does so, each part on its device; any other finds its weights whole on the first
        one. ``Weight.shard(device)`` is a device's part.

        Args:
            devices: Where to: all different.
            sharding_strategy: How weights are split; needed for more than one device.

        Raises:
            TypeError: If something is not a device.
            ValueError: If devices and strategy do not fit each other, or listing the weights that
                cannot be split so; nothing has changed then.
        """
        place(self, devices, sharding_strategy)

    # The state

    def raw_state_dict(self) -> dict[str, Weight]:
        """Every weight by full name, to look at or to change before a graph is built."""
        return states.weights_of(self)

    def state_dict(self, auto_initialize: bool = True) -> dict[str, Any]:
        """Every value by full name; the weights take those names from here on.

        What was loaded is given back as it was: arrays and tensors alike.

        Args:
            auto_initialize: Whether a weight without data becomes zeros. Else it is an error.

        Raises:
            MissingWeight: Naming every weight that has no data, or none and a size that is symbolic
                (also a ValueError).
        """
        states.name_weights(self)
        weights = states.weights_of(self)
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
        states.load(
            self,
            state_dict,
            strict=strict,
            override_encoding=override_quantization_encoding,
            align=weight_alignment,
        )

    # Graphs

    def build_subgraph(
        self, name: str, input_types: Sequence[Types], weight_prefix: str = ""
    ) -> Graph:
        """Trace this layer once, to be called once per layer with that layer's weights.

        Args:
            name: The subgraph's name, unique in the graph that calls it.
            input_types: For each argument a type, or a value whose type is meant; lists, tuples and
                dicts of them for an argument that nests tensors. A call takes them one by one.
            weight_prefix: What the names of this layer's weights start with. The rest of each name
                is what a call's ``prefix`` is put before.

        Raises:
            ValueError: If ``weight_prefix`` is given and no weight's name starts with it.
        """
        from maxtool.nn.pytree import flatten, unflatten

        inputs, nesting = flatten(list(input_types), (TensorType, Tensor))
        kinds = [value.type if isinstance(value, Tensor) else value for value in inputs]
        graph = Graph(name, input_types=kinds, weight_prefix=weight_prefix or None)
        with graph:
            call: Callable[..., Any] = self
            graph.output(*flatten(call(*unflatten(nesting, graph.inputs)))[0])
        if weight_prefix and not graph.placeholders:
            raise ValueError(
                f"no weight of subgraph {name!r} starts with {weight_prefix!r}:"
                f" {', '.join(graph.weight_values) or 'it has none'}"
            )
        return graph

    def __repr__(self) -> str:
        below, own = len(dict(tree.children(self))), len(tree.weights(self))
        return f"{type(self).__name__}({below} layers, {own} weights)"
