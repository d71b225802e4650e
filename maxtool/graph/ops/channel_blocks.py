"""Channels moved into blocks of pixels, and back."""

from __future__ import annotations

from maxtool.graph.ops.layout import permute, reshape
from maxtool.graph.ops.operation_table import as_tensor
from maxtool.graph.ops.require import require
from maxtool.graph.tensor import Tensor, TensorLike


def depth_to_space(x: TensorLike, block: int, channels_first: bool = False) -> Tensor:
    """Each pixel as a block of ``block`` by ``block`` pixels, which its channels are.

    Args:
        x: ``[batch, height, width, channels * block**2]``.
        block: The rows and columns of a block.
        channels_first: Whether the channel of the result changes slowest among those of a pixel of
            ``x`` (CRD of ONNX, PyTorch's ``pixel_shuffle``), rather than fastest (DCR).

    Returns:
        ``[batch, height * block, width * block, channels]``.

    Raises:
        ValueError: If there are not so many channels, or ``x`` is of another rank.
    """
    image = as_tensor(x)
    require(image.rank == 4 and block > 0, "depth_to_space: [batch, height, width, channels]")
    whole = image.shape[3].is_static and int(image.shape[3]) % block**2 == 0
    require(whole, f"depth_to_space: channels in blocks of {block} x {block}, not {image.type}")
    batch, height, width, channels = image.shape
    left = int(channels) // block**2
    inner = (left, block, block) if channels_first else (block, block, left)
    order = (0, 1, 4, 2, 5, 3) if channels_first else (0, 1, 3, 2, 4, 5)
    blocks = permute(reshape(image, (batch, height, width, *inner)), order)
    return reshape(blocks, (batch, height * block, width * block, left))


def space_to_depth(x: TensorLike, block: int) -> Tensor:
    """Each block of ``block`` by ``block`` pixels as one pixel, the inverse of `depth_to_space`.

    ``x`` is ``[batch, height, width, channels]``, whose height and width are known multiples of
    ``block``. The result is ``[batch, height / block, width / block, block**2 * channels]``, the
    channels of ``x`` changing fastest.

    Raises:
        ValueError: If ``x`` is not such.
    """
    image = as_tensor(x)
    require(image.rank == 4 and block > 0, "space_to_depth: [batch, height, width, channels]")
    batch, height, width, channels = image.shape
    whole = all(dim.is_static and int(dim) % block == 0 for dim in (height, width))
    require(whole, f"space_to_depth: height and width in blocks of {block}, not {image.type}")
    down, across = int(height) // block, int(width) // block
    blocks = permute(
        reshape(image, (batch, down, block, across, block, channels)), (0, 1, 3, 2, 4, 5)
    )
    return reshape(blocks, (batch, down, across, channels * block**2))
