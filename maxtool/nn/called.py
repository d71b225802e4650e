"""``Called``: a node of a module tree that is called, with the hooks after each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Generic, Self

from maxtool.nn.hooks import has_hooks, run_hooks
from maxtool.nn.layer_sharing import call_shared
from maxtool.nn.tree import Node, style_of

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:  # without defaults, which the standard library has from Python 3.13 on
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

Call = Callable[..., Any]


def _around(call: Call) -> Call:
    """``call`` with the subgraph of a repeated layer and the hooks around it.

    A class that defines ``__call__`` and reaches its parent's by ``super()`` has both only once.
    """

    @wraps(call)
    def around(self: Called[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
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


def signature_of(module: Called[..., Any]) -> Signature:
    """The signature of a module: of its class's own ``__call__``, or else ``forward``."""
    own = type(module).__call__ is not Called.__call__
    return signature(module.__call__ if own else module.forward)


def _as_declared(
    module: Called[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call by position where they may be, by name where they must be."""
    bound = signature_of(module).bind(*args, **kwargs)
    return bound.args, bound.kwargs


class Called(Node, Generic[P, R]):
    """Base class of what modules of both styles are when they are called."""

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls.__call__ = _around(cls.__call__)  # type: ignore[method-assign]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:  # noqa: ANN401
        """An instance; in the graph style only where the class says what it computes."""
        undefined = cls.forward is Called.forward and cls.__call__ is Called.__call__
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


# Not a decorator in the class body: that would hide the signature from type checkers.
Called.__call__ = _around(Called.__call__)  # type: ignore[method-assign]
