"""Graphs evaluated in NumPy float64, independent of the compiler."""

from maxtool.parity.evaluator import evaluate

__all__ = ["evaluate"]
