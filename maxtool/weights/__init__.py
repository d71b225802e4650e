"""Checkpoints: reading, writing and looking at the weights of a model."""

from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from maxtool.weights.data import WeightData
from maxtool.weights.spec import TensorInfo, TensorSpec
from maxtool.weights.view import Weights

__all__ = ["Checkpoint", "TensorInfo", "TensorSpec", "WeightData", "Weights", "open_checkpoint"]
