"""``Base``: what modules of both styles are: something to call, with hooks, that can be compiled.

A module's names belong to its user: the documents of its style say which few are taken. What the
package itself asks of a module are functions over the tree (:mod:`maxtool.nn.tree`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias

from maxtool.graph import Tensor, TensorType
from maxtool.nn import state as states
from maxtool.nn.hooks import has_hooks, run_hooks
from maxtool.nn.repeat import call_shared
from maxtool.nn.tree import Node, style_of

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
    def around(self: Base[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if type(self).__call__ is not around:
            return call(self, *args, **kwargs)

        def plain(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            outputs = call(self, *args, **kwargs)
            if not has_hooks():
                return outputs
            return run_hooks(self, *_as_declared(self, args, kwargs), outputs)

        shared, outputs = call_shared(self, plain, args, kwargs)
        return outputs if shared else plain(*args, **kwargs)

    return around


def signature_of(module: Base[..., Any]) -> Signature:
    """The signature of a module: of its class's own ``__call__``, or else :meth:`Base.forward`."""
    own = type(module).__call__ is not Base.__call__
    return signature(module.__call__ if own else module.forward)


def _as_declared(
    module: Base[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call by position where they may be, by name where they must be."""
    bound = signature_of(module).bind(*args, **kwargs)
    return bound.args, bound.kwargs


class Base(Node, Generic[P, R]):
    """A module of either style."""

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls.__call__ = _around(cls.__call__)  # type: ignore[method-assign]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:  # noqa: ANN401
        """An instance.

        Raises:
            TypeError: In the graph style, if the class does not say what it computes.
        """
        undefined = cls.forward is Base.forward and cls.__call__ is Base.__call__
        if undefined and not style_of(cls).may_be_undefined:
            raise TypeError(f"{cls.__name__} defines neither forward nor __call__")
        return super().__new__(cls)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Compute the module's results; a subclass says how.

        Raises:
            NotImplementedError: If the subclass does not.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither forward nor __call__")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run :meth:`forward`, and the hooks after it."""
        result: R = self.forward(*args, **kwargs)
        return result

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


# Not a decorator in the class body: that would hide the signature from type checkers.
Base.__call__ = _around(Base.__call__)  # type: ignore[method-assign]
