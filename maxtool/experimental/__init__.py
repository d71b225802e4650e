"""The eager style of the module API, by the paths of the reference; ``maxtool.nn.eager`` has it."""

from maxtool.experimental import functional, nn, tensor
from maxtool.experimental.random import module as random
from maxtool.experimental.tensor import Tensor

__all__ = ["Tensor", "functional", "nn", "random", "tensor"]
