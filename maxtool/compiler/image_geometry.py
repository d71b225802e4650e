"""The windows of nodes that work on images, as kernels take them."""

from __future__ import annotations

from maxtool.compiler.kernels.kernel_options import Phases, Window
from maxtool.graph import Node, Tensor


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


def image_window(node: Node) -> Window:
    """Return the window of such a convolution on an image.

    A line has one row, and the image of a volume is one of its slices.
    """
    window = filter_window(node)
    if len(window.size) == 1:
        return as_row(window)
    return window.along(slice(-2, None))


def are_pixels(node: Node) -> bool:
    """Return whether its images are single pixels, of any number: one line of so many."""
    x = node.inputs[0]
    plain = len(node.inputs) == 3  # whose channels have no factors for each image
    single = plain and x.shape[1:-1].is_static and x.shape[1:-1].volume() == 1
    return single and not x.shape[0].is_static and filter_window(node).is_pixel


def image_sizes(value: Tensor) -> tuple[int, int] | None:
    """Return the sizes of a value as an image, if they are known."""
    shape = value.shape[1:-1]
    if not shape.is_static:
        return None
    rows, columns = (1, *shape.static())[-2:]
    return rows, columns


def image_channels(node: Node) -> int:
    """Return the channels of its image: of a volume those of all slices that the window sees."""
    x, size = node.inputs[0], filter_window(node).size
    return int(x.shape[-1]) * (size[0] if len(size) == 3 else 1)


def phases_of(node: Node) -> tuple[Window, Phases]:
    """Return a transposed convolution as phases: their window, and the phases.

    A row ``q * stride + phase`` of what is cropped is the sum over ``j`` of row ``q - j`` of the
    image times row ``phase + stride * j`` of the filter.
    """
    window = image_window(node)
    axes = zip(window.size, window.stride, window.before, window.after, strict=True)
    parts = [_phase(*axis) for axis in axes]
    taps, before, after, cropped = (tuple(part[i] for part in parts) for i in range(4))
    return Window(taps, (1, 1), (1, 1), before, after), Phases(window.stride, window.size, cropped)


def _phase(size: int, stride: int, before: int, after: int) -> tuple[int, int, int, int]:
    """Return places of a phase's window, its padding, and what is cropped, along a dimension."""
    taps = -(-size // stride)
    first = min(before // stride, taps - 1)
    behind = max(0, (size - 1 - after) // stride)
    return taps, taps - 1 - first, behind, before - first * stride
