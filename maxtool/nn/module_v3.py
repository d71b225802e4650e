"""The eager style by the path of the older documents."""

from maxtool.nn.eager import *  # noqa: F403 - the same names
from maxtool.nn.eager import __all__ as __all__
