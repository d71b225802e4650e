"""The windows of nodes that work on images, as kernels take them."""

from __future__ import annotations

from maxtool.compiler.kernels.kernel_options import Window
from maxtool.graph import Node


def window_of(node: Node, size: tuple[int, ...]) -> Window:
    """Return the window of a size that a node slides."""
    attributes = node.attributes
    padding = attributes["padding"]
    return Window(size, attributes["stride"], attributes["dilation"], padding[::2], padding[1::2])


def filter_window(node: Node) -> Window:
    """Return the window of a convolution whose filter's dimensions lie in an order of its own."""
    order = node.attributes["order"]
    return window_of(node, tuple(int(node.inputs[1].shape[axis]) for axis in order[:-2]))


def as_row(window: Window) -> Window:
    """Return the window of a line as that of an image of one row."""
    parts = (window.size, window.stride, window.dilation, window.before, window.after)
    row = zip((1, 1, 1, 0, 0), parts, strict=True)
    return Window(*((one, *part) for one, part in row))


def image_window(node: Node) -> tuple[Window, tuple[int, int]]:
    """Return the window of such a convolution, and the sizes of its image: a line has one row."""
    window, sizes = filter_window(node), node.inputs[0].shape[1:-1].static()
    if len(sizes) == 1:
        return as_row(window), (1, *sizes)
    rows, columns = sizes
    return window, (rows, columns)
