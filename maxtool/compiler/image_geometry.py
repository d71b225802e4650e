"""The windows of nodes that work on images, as kernels take them."""

from __future__ import annotations

from maxtool.compiler.kernels.kernel_options import Phases, Window
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


def phases_of(node: Node) -> tuple[Window, tuple[int, int], Phases]:
    """Return a transposed convolution as phases: their window, the image's sizes, and the phases.

    A row ``q * stride + phase`` of what is cropped is the sum over ``j`` of row ``q - j`` of the
    image times row ``phase + stride * j`` of the filter.
    """
    window, image = image_window(node)
    result = node.outputs[0].shape[1:-1].static()
    axes = list(zip(window.size, window.stride, window.before, image, strict=True))
    sizes = (1, *result) if len(result) == 1 else result
    parts = [_phases(*axis, size) for axis, size in zip(axes, sizes, strict=True)]
    taps, before, after, cropped = (tuple(part[i] for part in parts) for i in range(4))
    ones = (1, 1)
    phases = Phases(_two(window.stride), _two(window.size), _two(cropped), _two(sizes))
    return Window(taps, ones, ones, before, after), image, phases


def _phases(size: int, stride: int, before: int, given: int, made: int) -> tuple[int, ...]:
    """Return places of a phase's window, its padding, and what is cropped, along a dimension."""
    taps = -(-size // stride)
    first, last = min(before // stride, taps - 1), (made - 1 + before) // stride
    return taps, taps - 1 - first, max(0, last - given + 1), before - first * stride


def _two(sizes: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = sizes
    return rows, columns
