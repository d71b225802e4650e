"""Checkpoints: reading, writing and looking at the weights of a model."""

from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from maxtool.weights.tensor_info import TensorInfo, TensorSpec
from maxtool.weights.view import Weights
from maxtool.weights.weight_data import WeightData

__all__ = ["Checkpoint", "TensorInfo", "TensorSpec", "WeightData", "Weights", "open_checkpoint"]
