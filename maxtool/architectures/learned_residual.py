"""Learned augmented residuals (LAuReL, Menghani et al. 2024, arXiv:2411.07501), of low rank."""

from __future__ import annotations

from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.normalization import stream_norm
from maxtool.dtype import DType
from maxtool.graph import Tensor
from maxtool.nn import Linear, Module


class LearnedResidual(Module[[Tensor], Tensor]):
    """``x + norm(up(down(x)))``, with ``rank`` elements between the two matrices."""

    def __init__(self, config: DecoderConfig, rank: int, dtype: DType) -> None:
        self.down = Linear(config.hidden_size, rank, dtype)
        self.up = Linear(rank, config.hidden_size, dtype)
        self.norm = stream_norm(config)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[..., hidden]`` to the same shape."""
        return x + self.norm(self.up(self.down(x)))
