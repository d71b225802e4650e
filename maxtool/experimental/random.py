"""Tensors of random numbers."""

from maxtool.nn.eager.random import gaussian, normal, set_seed, uniform

__all__ = ["gaussian", "normal", "set_seed", "uniform"]
