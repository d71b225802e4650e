"""Modules and layers in the eager style: they run as they are called, on tensors that hold data.

The tree, the operations and the compiler are those of the graph style.
"""

from maxtool.nn.eager.activations import GELU, Identity, ReLU, Sigmoid, SiLU, Tanh
from maxtool.nn.eager.containers import ModuleList, Sequential
from maxtool.nn.eager.conv import Conv1d, Conv2d
from maxtool.nn.eager.dropout import Dropout
from maxtool.nn.eager.embedding import Embedding
from maxtool.nn.eager.linear import Linear
from maxtool.nn.eager.module import Module, module_dataclass
from maxtool.nn.eager.multihead_attention import MultiheadAttention
from maxtool.nn.eager.norms import GroupNorm, LayerNorm, RMSNorm
from maxtool.nn.eager.rotary import RotaryEmbedding, TransposedRotaryEmbedding

__all__ = [
    "GELU",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "RMSNorm",
    "ReLU",
    "RotaryEmbedding",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Tanh",
    "TransposedRotaryEmbedding",
    "module_dataclass",
]
