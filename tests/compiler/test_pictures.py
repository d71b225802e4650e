"""Pictures of three channels put into another order, and means of whole images."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.graph import Tensor, ops

RANDOM = np.random.default_rng(11)


@pytest.mark.parametrize("size", [(5, 37), (1, 300), (7, 16), (4, 9)])
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("kind", ["float32", "float64", "uint8"])
def test_channels_come_last(size: tuple[int, int], channels: int, kind: str) -> None:
    x = RANDOM.integers(0, 200, (2, channels, *size)).astype(kind)
    moved = ops.permute(Tensor(x), (0, 2, 3, 1))
    np.testing.assert_array_equal(moved.to_numpy(), x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("channels", [5, 32, 70, 300])
def test_the_mean_of_an_image(channels: int, batch: int) -> None:
    """Share it by channels, of which there is a rest of a block or none."""
    x = RANDOM.normal(size=(batch, 20, 21, channels)).astype(np.float32)
    mean = ops.avg_pool2d(Tensor(x), (20, 21)).to_numpy()
    np.testing.assert_allclose(mean, x.mean((1, 2), keepdims=True), 1e-5, 1e-6)
    largest = ops.max_pool2d(Tensor(x), (20, 21)).to_numpy()
    np.testing.assert_array_equal(largest, x.max((1, 2), keepdims=True))
