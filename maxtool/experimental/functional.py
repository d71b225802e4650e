"""The operations by the names of the eager style; the same functions as ``maxtool.graph.ops``."""

from maxtool.graph.ops import *  # noqa: F403 - the same names
from maxtool.graph.ops import __all__ as __all__
