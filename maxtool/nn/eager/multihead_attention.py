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

    Args:
        num_attention_heads: Heads of queries.
        hidden_size: Width of the hidden state.
        devices: Where the parameters are: one device.
        dtype: Their element type, float32 by default.
        scale: What scores are multiplied by; ``head_dim ** -0.5`` by default.
        qkv_has_bias: Whether the projections to queries, keys and values have a bias.
        o_proj_has_bias: Whether the last projection has one.
        stacked_qkv: Whether the first three are one.
        num_key_value_heads: Heads of keys and values; as many as of queries by default.
        head_dim: Width of a head; ``hidden_size / num_attention_heads`` by default.
        causal: Whether a token sees only those up to itself.
        rope: A module that turns queries and keys by their positions.

    Raises:
        ValueError: If the sizes do not fit together, or several devices are given.
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

        project = self._project_stacked if stacked_qkv else self._project
        project(make, qkv_has_bias, o_proj_has_bias)

    def input_types(self) -> list[TensorType]:
        """A batch of sequences."""
        kinds = [leaf.tensor.dtype for leaf in tree.leaves(self.o_proj)]
        return [TensorType(kinds[0], ["batch", "seq", self.hidden_size], self.device)]

    def __rich_repr__(self) -> Parts:
        for name in ("num_attention_heads", "hidden_size", "num_key_value_heads", "causal"):
            yield name, getattr(self, name)
