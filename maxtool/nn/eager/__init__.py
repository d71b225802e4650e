"""Modules and layers in the eager style: they run as they are called, on tensors that hold data.

The tree, the operations and the compiler are those of the graph style.
"""

from maxtool.nn.eager.containers import ModuleList, Sequential
from maxtool.nn.eager.dropout import Dropout
from maxtool.nn.eager.embedding import Embedding
from maxtool.nn.eager.linear import Linear
from maxtool.nn.eager.module import Module, module_dataclass
from maxtool.nn.eager.norm import GroupNorm, LayerNorm, RMSNorm

__all__ = [
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "RMSNorm",
    "Sequential",
    "module_dataclass",
]
