"""The eager layers beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from maxtool.nn import eager

RANDOM = np.random.default_rng(5)


def image(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RANDOM.normal(2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (1, 6, 3, 4), (0, 6, 3)])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_norm(shape: tuple[int, ...], groups: int) -> None:
    layer, x = eager.GroupNorm(groups, 6, eps=1e-3), image(*shape)
    layer.weight, layer.bias = Tensor(image(6)), Tensor(image(6))
    parts = x.astype(np.float64).reshape(shape[0], groups, 6 // groups, *shape[2:])
    axes = tuple(range(2, parts.ndim))
    centred = parts - parts.mean(axes, keepdims=True)
    normed = centred / np.sqrt(parts.var(axes, keepdims=True) + 1e-3)
    column = (6, *[1] * (len(shape) - 2))
    scaled = normed.reshape(shape) * layer.weight.to_numpy().reshape(column)
    expected = scaled + layer.bias.to_numpy().reshape(column)
    np.testing.assert_allclose(layer(Tensor(x)).to_numpy(), expected, rtol=1e-4, atol=1e-4)


def test_group_norm_without_factors() -> None:
    layer = eager.GroupNorm(2, 4, affine=False)
    assert dict(layer.parameters) == {}
    assert repr(layer) == "GroupNorm(num_groups=2, num_channels=4, eps=1e-05, affine=False)"
    result = layer(Tensor(image(3, 4, 9))).to_numpy()
    np.testing.assert_allclose(result.reshape(3, 2, -1).mean(2), 0, atol=1e-5)
    np.testing.assert_allclose(result.reshape(3, 2, -1).std(2), 1, atol=1e-3)
    for groups in (0, 3, -1):
        with pytest.raises(ValueError, match="4 channels do not make"):
            eager.GroupNorm(groups, 4)


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_norms_compiled_for_any_batch(batch: int) -> None:
    x = image(batch, 7)
    for layer in (eager.LayerNorm(7, eps=1e-3), eager.RMSNorm(7, eps=1e-3)):
        layer.load_state({name: Tensor(image(7)) for name, _ in layer.parameters}.__getitem__)
        run = layer.compile(TensorType(DType.float32, ["batch", 7]))
        weight = layer.weight.to_numpy()
        wide = x.astype(np.float64)
        if isinstance(layer, eager.LayerNorm):
            wide = wide - wide.mean(1, keepdims=True)
        expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-3) * weight
        if isinstance(layer, eager.LayerNorm):
            expected = expected + layer.bias.to_numpy()
        np.testing.assert_allclose(run(x).to_numpy(), expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(layer(Tensor(x)).to_numpy(), run(x).to_numpy())


def test_dropout_is_the_identity() -> None:
    x = Tensor(image(3, 4))
    assert eager.Dropout(0.3)(x) is x
    assert repr(eager.Dropout(0.3)) == "Dropout(p=0.3)"
    with pytest.raises(ValueError, match="a share from 0 to 1, not 2"):
        eager.Dropout(2)
