"""The windows of nodes that work on images, as kernels take them."""

from __future__ import annotations

from dataclasses import replace

from maxtool.compiler.kernels.kernel_options import Phases, SizedPhases, Window
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


def image_channels(node: Node) -> int:
    """Return the channels of its image: of a volume those of all slices that the window sees."""
    x, size = node.inputs[0], filter_window(node).size
    return int(x.shape[-1]) * (size[0] if len(size) == 3 else 1)


def as_row(window: Window) -> Window:
    """Return the window of a line as that of an image of one row."""
    parts = (window.size, window.stride, window.dilation, window.before, window.after)
    row = zip((1, 1, 1, 0, 0), parts, strict=True)
    return Window(*((one, *part) for one, part in row))


def image_window(node: Node) -> tuple[Window, tuple[int, int]]:
    """Return the window of such a convolution, and the sizes of its image.

    A line has one row, and the image of a volume is one of its slices.
    """
    window, sizes = filter_window(node), node.inputs[0].shape[1:-1].static()
    if len(sizes) == 1:
        return as_row(window), (1, *sizes)
    if len(sizes) == 3:
        window, sizes = window.along(slice(1, None)), sizes[1:]
    rows, columns = sizes
    return window, (rows, columns)


def phases_of(node: Node) -> tuple[Window, Phases]:
    """Return a transposed convolution as phases: their window, and the phases.

    A row ``q * stride + phase`` of what is cropped is the sum over ``j`` of row ``q - j`` of the
    image times row ``phase + stride * j`` of the filter. The window's padding behind an image is
    as much as it can be.
    """
    window = filter_window(node)
    if len(window.size) == 1:
        window = as_row(window)
    axes = zip(window.size, window.stride, window.before, strict=True)
    parts = [_phase(*axis) for axis in axes]
    taps, before, cropped = (tuple(part[i] for part in parts) for i in range(3))
    ones, behind = (1, 1), tuple(max(window.stride) + size for size in taps)
    phases = Phases(_two(window.stride), _two(cropped))
    return Window(taps, ones, ones, before, behind), phases


def sized_phases_of(node: Node) -> tuple[Window, tuple[int, int], SizedPhases]:
    """Return the same of images of known sizes, with these: just so much padding is behind them."""
    window, phases = phases_of(node)
    given, image = image_window(node)
    made = node.outputs[0].shape[1:-1].static()
    result = _two((1, *made) if len(made) == 1 else made)
    axes = zip(image, result, given.stride, given.before, strict=True)
    after = tuple(
        max(0, (size - 1 + before) // stride - pixels + 1) for pixels, size, stride, before in axes
    )
    sized = SizedPhases(phases.stride, phases.before, _two(given.size), result)
    return replace(window, after=after), image, sized


def _phase(size: int, stride: int, before: int) -> tuple[int, int, int]:
    """Return places of a phase's window, padding before it, and what is cropped, of a dimension."""
    taps = -(-size // stride)
    first = min(before // stride, taps - 1)
    return taps, taps - 1 - first, before - first * stride


def _two(sizes: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = sizes
    return rows, columns
