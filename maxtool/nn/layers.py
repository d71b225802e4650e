"""The layers that hold one weight, or one and a bias."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.graph import DeviceRef, ShardingStrategy, Tensor, Weight, ops
from maxtool.nn import parallel, tree
from maxtool.nn.module import Module
from maxtool.nn.placement import by_dimension, sharding_of
from maxtool.nn.tensor_parallel import Role, strategy_of
from maxtool.quantization import QuantizationEncoding


class Linear(Module[[Tensor], Tensor]):
    """``x @ weight.T + bias``.

    Args:
        in_dim: The width of the input.
        out_dim: The width of the output.
        dtype: The weight's element type; the bias is float32.
        device: Where the weights live.
        has_bias: Whether there is a bias.
        quantization_encoding: How the weight's blocks are encoded, if they are.

    Attributes:
        weight: ``[out_dim, in_dim]``.
        bias: ``[out_dim]``, or None.
        role: What a device has of it where a model is split over several by layers; None: all.
    """

    role: Role | None = None

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
        has_bias: bool = False,
        quantization_encoding: QuantizationEncoding | None = None,
    ) -> None:
        shape = (out_dim, in_dim)
        self.weight = Weight("weight", dtype, shape, device, quantization_encoding)
        self.bias = Weight("bias", DType.float32, (out_dim,), device) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., in_dim]`` to ``[..., out_dim]``."""
        return parallel.linear(x, self.weight, self.bias, self.role)


@sharding_of.register
def _(layer: Linear, name: str, weight: Weight, strategy: ShardingStrategy) -> ShardingStrategy:
    """The strategy as for any layer; where layers say how they are split, the one for its role."""
    if not strategy.is_tensor_parallel:
        return by_dimension(weight, strategy)
    is_own = name not in tree.shared(layer)
    return strategy_of(layer.role if is_own else None, weight, strategy.num_devices)


class Embedding(Module[[Tensor], Tensor]):
    """A table of vectors, looked up by id.

    Args:
        vocab_size: How many vectors there are.
        hidden_dim: The width of a vector.
        dtype: The table's element type.
        device: Where the table lives.

    Attributes:
        weight: ``[vocab_size, hidden_dim]``.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        dtype: DType = DType.float32,
        device: DeviceRef | None = None,
    ) -> None:
        self.weight = Weight("weight", dtype, (vocab_size, hidden_dim), device)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up int64 ``[...]``; returns float32 ``[..., hidden_dim]``."""
        return parallel.embedding(ids, self.weight)


class RMSNorm(Module[[Tensor], Tensor]):
    """Root-mean-square normalisation over the last dimension.

    Args:
        dim: Its width.
        eps: Added to the mean of squares.
        device: Where the weight lives.

    Attributes:
        weight: ``[dim]``, float32.
    """

    def __init__(self, dim: int, eps: float = 1e-6, device: DeviceRef | None = None) -> None:
        self.weight = Weight("weight", DType.float32, (dim,), device)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., dim]`` to the same shape."""
        return ops.rms_norm(x, parallel.local(self.weight, x.device), self.eps)


@sharding_of.register
def _(_layer: RMSNorm, _name: str, _weight: Weight, strategy: ShardingStrategy) -> ShardingStrategy:
    """Copy the whole weight to every device: each element is scaled by a mean over all."""
    return ShardingStrategy.replicate(strategy.num_devices)
