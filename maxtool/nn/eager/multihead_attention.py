"""Attention of a sequence to itself, with random projections."""

from __future__ import annotations

from collections.abc import Sequence

from maxtool.dtype import DType
from maxtool.graph import Tensor, TensorType
from maxtool.graph.device import Device
from maxtool.nn import multihead_attention, tree
from maxtool.nn.eager.linear import Linear
from maxtool.nn.eager.module import Module
from maxtool.nn.eager.rendering import Parts


class MultiheadAttention(multihead_attention.SelfAttention, Module[..., Tensor]):
    """Attention of a sequence to itself.

    Options and errors are those of :class:`maxtool.nn.MultiheadAttention`; biases have the
    ``dtype`` too, float32 by default.
    """

    def __init__(
        self,
        num_attention_heads: int,
        hidden_size: int,
        devices: Sequence[Device] | None = None,
        dtype: DType | None = None,
        scale: float | None = None,
        qkv_has_bias: bool = False,
        o_proj_has_bias: bool = False,
        stacked_qkv: bool = False,
        *,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = False,
        rope: Module[..., Tensor] | None = None,
    ) -> None:
        heads = num_attention_heads, num_key_value_heads or num_attention_heads
        width = hidden_size // max(num_attention_heads, 1) if head_dim is None else head_dim
        self._configure(heads, (hidden_size, width), scale, causal, rope)
        if len(devices or ()) > 1:
            raise ValueError("MultiheadAttention is on one device")

        def make(inner: int, outer: int, bias: bool) -> multihead_attention.Projection:
            layer = Linear(inner, outer, bias=bias)
            if dtype is not None:
                numpy_type = dtype.to_numpy()
                layer.apply_to_parameters(
                    lambda _, tensor: Tensor(tensor.to_numpy().astype(numpy_type))
                )
            return layer.to(devices[0]) if devices else layer

        self._project(make, qkv_has_bias, o_proj_has_bias, stacked_qkv)

    def input_types(self) -> list[TensorType]:
        """A batch of sequences."""
        kinds = [leaf.tensor.dtype for leaf in tree.leaves(self.o_proj)]
        return [TensorType(kinds[0], ["batch", "seq", self.hidden_size], self.device)]

    def __rich_repr__(self) -> Parts:
        for name in ("num_attention_heads", "hidden_size", "num_key_value_heads", "causal"):
            yield name, getattr(self, name)
