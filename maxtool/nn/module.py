"""``Module``: a tree of layers with automatic weight tracking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias

from maxtool.graph import Graph, Tensor, TensorType, Weight
from maxtool.nn import state as states
from maxtool.nn import tree
from maxtool.nn.hooks import run_hooks
from maxtool.nn.repeat import call_shared, sharing
from maxtool.nn.stateful import Stateful

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from maxtool.nn.compiled import CompiledModule, Session

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:  # without defaults, which the standard library has from Python 3.13 on
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

Call = Callable[..., Any]
# A type, or a value that has it, or tuples, lists and dicts of them.
Types: TypeAlias = "TensorType | Tensor | Sequence[Types] | Mapping[str, Types]"


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


class Module(Stateful, Generic[P, R]):
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

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:  # noqa: ANN401
        """An instance.

        Raises:
            TypeError: In the graph style, if the class does not say what it computes.
        """
        undefined = cls.forward is Module.forward and cls.__call__ is Module.__call__
        if undefined and not cls.may_be_undefined:
            raise TypeError(f"{cls.__name__} defines neither forward nor __call__")
        return super().__new__(cls)

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

    # Graphs

    def build_subgraph(
        self,
        name: str,
        input_types: Sequence[Types],
        weight_prefix: str = "",
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

        given, nesting = flatten(list(input_types), (TensorType, Tensor))
        kinds = [one.type if isinstance(one, Tensor) else one for one in given]
        graph = Graph(name, input_types=kinds, weight_prefix=weight_prefix or None)
        with graph:
            call: Call = self
            graph.output(*flatten(call(*unflatten(nesting, graph.inputs)))[0])
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
        plain = [leaf for leaf in tree.leaves(self) if not isinstance(leaf.tensor, Weight)]
        names = {id(leaf.tensor): leaf.name for leaf in reversed(plain)}  # the first of several
        with sharing(self):
            return Graph(name, function or self, input_types, names=names)

    def compile(
        self,
        *input_types: Types,
        weights: Mapping[str, states.Value] | None = None,
        session: Session | None = None,
    ) -> CompiledModule:
        """Compile the module for this machine.

        The values of the weights are taken now: what happens to the module later changes nothing.

        Args:
            input_types: A type for each argument, or tuples, lists and dicts of types as the
                argument nests tensors. A symbolic dimension may have another size in every call.
            weights: Values to use instead of the module's own, by full name.
            session: An ``InferenceSession`` whose devices the module is to use; any if absent.

        Returns:
            A function of tensors or NumPy arrays that returns what ``forward`` does, nested alike.

        Raises:
            TypeError: If ``forward`` does not take that many arguments.
            ValueError: If an operation's operands do not fit, or the session lacks a device.
            MissingWeight: Listing the weights without data, or missing in ``weights``.
            UnexpectedWeight: Listing the names in ``weights`` that the module does not use.
            MisshapenWeight: Listing the values of another dtype or shape than declared.
            MissingDevice: If something is to run on a device that is not here (also a ValueError).
        """
        from maxtool.nn.compiled import compile_module

        return compile_module(self, input_types, weights, session)

    def __repr__(self) -> str:
        below, own = len(self.sublayers), len(self.layer_weights)
        return f"{type(self).__name__}({below} layers, {own} weights)"


# Not a decorator in the class body: that would hide the signature from type checkers.
Module.__call__ = _around(Module.__call__)  # type: ignore[method-assign]
