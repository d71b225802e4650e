"""Tensors of random numbers; called itself, as in ``random([3, 2])``, numbers from 0 to 1."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import cast

from maxtool.graph.random import gaussian, normal, set_seed, uniform

__all__ = ["gaussian", "normal", "set_seed", "uniform"]


class Random(ModuleType):
    """Callable stand-in for this module, which the documents call like ``numpy.random.random``."""

    uniform = staticmethod(uniform)
    normal = staticmethod(normal)
    gaussian = staticmethod(gaussian)
    set_seed = staticmethod(set_seed)
    __call__ = staticmethod(uniform)


sys.modules[__name__].__class__ = Random
# The module as a type checker is to see it.
module = cast("Random", sys.modules[__name__])
