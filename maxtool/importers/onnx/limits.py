"""Bounds on what a model may ask for, so that a hostile one costs bounded time and memory."""

from __future__ import annotations

MOST_STRUCTURE_BYTES = 1 << 29
"""Bytes of a graph beside its initializers."""
MOST_NODES = 100_000
"""Nodes that are imported, those of functions and of unrolled loops each time."""
MOST_DEPTH = 32
"""Functions inside functions, and graphs inside nodes."""
MOST_BYTES = 1 << 48
"""Bytes of a tensor, more than any memory has."""
MOST_FOLDED_BYTES = 1 << 28
"""Bytes of a value that is computed while the model is imported."""
KNOWN_ELEMENTS = 1 << 12
"""Elements up to which an initializer is known while the model is imported, not a weight."""
MOST_DIMS = 32
"""Dimensions of a tensor."""
