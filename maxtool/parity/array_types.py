"""Types of the operands of definitions, and of the tables of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Axes: TypeAlias = tuple[int, ...]

# From operands, and attributes by name, to the result, or a tuple of several. Sizes among the
# attributes are numbers, and ranges are slices.
Definitions: TypeAlias = Mapping[str, Callable[..., Any]]
