"""``Module`` in the eager style, by its own path."""

from maxtool.nn.eager.module import Module, module_dataclass

__all__ = ["Module", "module_dataclass"]
