"""The operations of ``maxtool.graph.ops``, and what makes tensors of one value or of chance."""

from maxtool.graph import ops
from maxtool.graph.creation import full, full_like, ones, ones_like, zeros, zeros_like
from maxtool.graph.ops import *  # noqa: F403 - the same names
from maxtool.graph.random import gaussian, normal, uniform

__all__ = [
    "full",
    "full_like",
    "gaussian",
    "normal",
    "ones",
    "ones_like",
    "uniform",
    "zeros",
    "zeros_like",
]
__all__ += ops.__all__
