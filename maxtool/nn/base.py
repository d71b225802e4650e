"""``ModuleBase``, of which modules of both styles are: called, with hooks, and compiled.

A module's names belong to its user: the documents of its style say which few are taken. What the
package itself asks of a module are functions over the tree (:mod:`maxtool.nn.tree`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeAlias

from maxtool.graph import Tensor, TensorType
from maxtool.nn import state as states
from maxtool.nn.called import Called, P, R
from maxtool.nn.compiled import CompiledModule, DeviceSession, compile_module

# A type, or a value that has it, or tuples, lists and dicts of them.
Types: TypeAlias = "TensorType | Tensor | Sequence[Types] | Mapping[str, Types]"


class ModuleBase(Called[P, R], Generic[P, R]):
    """A module of either style."""

    def compile(
        self,
        *input_types: Types,
        weights: Mapping[str, states.Value] | None = None,
        session: DeviceSession | None = None,
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
        return compile_module(self, input_types, weights, session)
