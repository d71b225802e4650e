"""Modules: trees of layers with automatic weight tracking."""

from maxtool.nn.containers import LayerList, ModuleList, Sequential
from maxtool.nn.hooks import add_layer_hook, clear_hooks
from maxtool.nn.layers import Embedding, Linear, RMSNorm
from maxtool.nn.module import Module

__all__ = [
    "Embedding",
    "LayerList",
    "Linear",
    "Module",
    "ModuleList",
    "RMSNorm",
    "Sequential",
    "add_layer_hook",
    "clear_hooks",
]
