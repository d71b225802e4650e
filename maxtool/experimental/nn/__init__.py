"""Modules and layers in the eager style."""

from maxtool.nn.eager import *  # noqa: F403 - the same names
from maxtool.nn.eager import __all__ as __all__
