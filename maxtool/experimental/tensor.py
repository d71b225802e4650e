"""Eager tensors and their types."""

from maxtool.nn.eager.tensor import Tensor, TensorType, defaults

__all__ = ["Tensor", "TensorType", "defaults"]
