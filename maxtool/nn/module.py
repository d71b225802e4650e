"""``Module``: a tree of layers with automatic weight tracking."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np

from maxtool.errors import MissingWeight
from maxtool.graph import Graph, Tensor, TensorType, Weight
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.hooks import run_hooks
from maxtool.nn.repeat import call_shared, sharing
from maxtool.weights.data import WeightData

if TYPE_CHECKING:
    from maxtool.nn.compiled import CompiledModule

Call = Callable[..., Any]
# A type, or tuples, lists and dicts of types.
Types: TypeAlias = "TensorType | Sequence[Types] | Mapping[str, Types]"
P = ParamSpec("P")
R = TypeVar("R")


def _around(call: Call) -> Call:
    """``call`` with the subgraph of a repeated layer and the hooks around it.

    A class that defines ``__call__`` and reaches its parent's by ``super()`` has both only once.
    """

    @wraps(call)
    def around(self: Module[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if type(self).__call__ is not around:
            return call(self, *args, **kwargs)

        def plain(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            return run_hooks(self, args, kwargs, call(self, *args, **kwargs))

        shared, outputs = call_shared(self, plain, args, kwargs)
        return outputs if shared else plain(*args, **kwargs)

    return around


class Module(Generic[P, R]):
    """A layer, or a tree of them.

    Tensors and modules set as attributes are found by themselves; ``super().__init__()`` need not
    be called. A subclass defines :meth:`forward`, or ``__call__``::

        class MLP(Module[[Tensor], Tensor]):
            def __init__(self) -> None:
                self.up = Linear(5, 10)
                self.down = Linear(10, 5)

            def forward(self, x: Tensor) -> Tensor:
                return self.down(ops.silu(self.up(x)))
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls.__call__ = _around(cls.__call__)  # type: ignore[method-assign]

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What the module computes; a subclass says it.

        Raises:
            NotImplementedError: If the subclass does not.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither forward nor __call__")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run :meth:`forward`, and the hooks after it."""
        result: R = self.forward(*args, **kwargs)
        return result

    # The tree

    def tree_items(self) -> Iterator[tuple[str, Any]]:
        """Attributes by name, without the module's own bookkeeping. A list adds its items."""
        for name, value in vars(self).items():
            if name != "_shared_weight_names":
                yield name, value

    @property
    def shared_weight_names(self) -> frozenset[str]:
        """The attributes whose weights belong to another module."""
        return frozenset(vars(self).get("_shared_weight_names", ()))

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

        States list it once, under its owner's name.
        """
        self._shared_weight_names = {*self.shared_weight_names, name}
        setattr(self, name, weight)

    # The state

    def raw_state_dict(self) -> dict[str, Weight]:
        """Every weight by full name, to look at or to change before a graph is built."""
        return {
            leaf.name: leaf.tensor for leaf in tree.leaves(self) if isinstance(leaf.tensor, Weight)
        }

    def state_dict(self, auto_initialize: bool = True) -> dict[str, np.ndarray[Any, Any]]:
        """Every value by full name; the weights take those names from here on.

        Args:
            auto_initialize: Whether a weight without data becomes zeros. Else it is an error.

        Raises:
            MissingWeight: Naming every weight that has no data.
        """
        self.finalize_names()
        weights = self.raw_state_dict()
        unset = {name: weight for name, weight in weights.items() if not weight.is_bound}
        if unset and not auto_initialize:
            raise MissingWeight("weights have no data", problems=list(unset))
        for weight in unset.values():
            weight.bind(np.zeros(weight.shape.static(), weight.dtype.to_numpy()))
        return {leaf.name: leaf.tensor.to_numpy() for leaf in tree.leaves(self)}

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
        for name, data in found.items():
            _assign(leaves[name], data, weight_alignment)

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
        for name, weight in self.raw_state_dict().items():
            weight.name = name

    # Graphs

    def build_subgraph(
        self,
        name: str,
        input_types: Sequence[TensorType | Sequence[TensorType]],
        weight_prefix: str = "",
    ) -> Graph:
        """Trace this layer once, to be called once per layer with that layer's weights.

        Args:
            name: The subgraph's name, unique in the graph that calls it.
            input_types: A type for each argument; a list of them for an argument that is a list.
            weight_prefix: What the names of this layer's weights start with. The rest of each name
                is what a call's ``prefix`` is put before.

        Raises:
            ValueError: If ``weight_prefix`` is given and no weight's name starts with it.
        """
        from maxtool.nn.pytree import flatten

        nested = [kind if isinstance(kind, TensorType) else list(kind) for kind in input_types]
        flat = [kind for part in nested for kind in (part if isinstance(part, list) else [part])]
        graph = Graph(name, input_types=flat, weight_prefix=weight_prefix or None)
        with graph:
            values = iter(graph.inputs)
            args = [
                [next(values) for _ in part] if isinstance(part, list) else next(values)
                for part in nested
            ]
            call: Call = self
            graph.output(*flatten(call(*args))[0])
        if weight_prefix and not graph.placeholders:
            raise ValueError(
                f"no weight of subgraph {name!r} starts with {weight_prefix!r}:"
                f" {', '.join(graph.weight_values) or 'it has none'}"
            )
        return graph

    def trace(
        self, name: str, input_types: Iterable[TensorType], function: Call | None = None
    ) -> Graph:
        """Trace the module, or another function over it, with equal layers traced once.

        Args:
            name: The graph's name.
            input_types: A type for each argument.
            function: What to trace instead of calling the module.
        """
        self.finalize_names()
        plain = (leaf for leaf in tree.leaves(self) if not isinstance(leaf.tensor, Weight))
        names = {id(leaf.tensor): leaf.name for leaf in plain}
        with sharing(self):
            return Graph(name, function or self, input_types, names=names)

    def compile(
        self, *input_types: Types, weights: Mapping[str, states.Value] | None = None
    ) -> CompiledModule:
        """Compile the module for this machine.

        The values of the weights are taken now: what happens to the module later changes nothing.

        Args:
            input_types: A type for each argument, or tuples, lists and dicts of types as the
                argument nests tensors. A symbolic dimension may have another size in every call.
            weights: Values to use instead of the module's own, by full name.

        Returns:
            A function of tensors or NumPy arrays that returns what ``forward`` does, nested alike.

        Raises:
            TypeError: If ``forward`` does not take that many arguments.
            ValueError: If an operation's operands do not fit.
            MissingWeight: Listing the weights without data, or missing in ``weights``.
            UnexpectedWeight: Listing the names in ``weights`` that the module does not use.
            MisshapenWeight: Listing the values of another dtype or shape than declared.
            MachineLacks: If something is to run on another device than the host.
        """
        from maxtool.nn.compiled import compile_module

        return compile_module(self, input_types, weights)

    def __repr__(self) -> str:
        below, own = len(self.sublayers), len(self.layer_weights)
        return f"{type(self).__name__}({below} layers, {own} weights)"


# Not a decorator in the class body: that would hide the signature from type checkers.
Module.__call__ = _around(Module.__call__)  # type: ignore[method-assign]


def _assign(leaf: tree.Leaf, data: WeightData, align: int | None) -> None:
    if not isinstance(leaf.tensor, Weight):
        object.__setattr__(leaf.owner, leaf.attribute, Tensor(data.data))  # frozen or not
        return
    leaf.tensor.bind(data.data)
    leaf.tensor.quantization_encoding = data.quantization_encoding
    leaf.tensor.align = align or leaf.tensor.align


def _takes_one(lookup: Callable[..., Any]) -> bool:
    """Whether a lookup can be called with the name alone; one without a signature can."""
    try:
        signature = inspect.signature(lookup)
    except ValueError:
        return True
    try:
        signature.bind("")
    except TypeError:
        return False
    return True
