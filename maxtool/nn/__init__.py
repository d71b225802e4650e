"""Modules: trees of layers with automatic weight tracking."""

from maxtool.nn import eager, layer, module_v3
from maxtool.nn.activations import GELU, Identity, ReLU, Sigmoid, SiLU, Tanh
from maxtool.nn.containers import LayerList, ModuleList, Sequential
from maxtool.nn.conv import Conv1D, Conv1d, Conv2d
from maxtool.nn.hooks import add_layer_hook, clear_hooks
from maxtool.nn.layers import Embedding, Linear, RMSNorm
from maxtool.nn.module import Module
from maxtool.nn.multihead_attention import MultiheadAttention
from maxtool.nn.norms import GroupNorm, LayerNorm
from maxtool.nn.rotary import RotaryEmbedding

__all__ = [
    "GELU",
    "Conv1D",
    "Conv1d",
    "Conv2d",
    "Embedding",
    "GroupNorm",
    "Identity",
    "LayerList",
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
    "add_layer_hook",
    "clear_hooks",
    "eager",
    "layer",
    "module_v3",
]
