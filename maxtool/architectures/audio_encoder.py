"""The encoder of sounds: two convolutions over a spectrogram, then a transformer."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.pre_norm_layer import LayerSizes, PreNormLayer
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import LayerNorm, Module, ModuleList
from maxtool.nn.conv import Conv1d

TAPS, STRIDE = 3, 2
"""Frames that each convolution looks at, and how many of them become one position."""


@dataclass(frozen=True, slots=True)
class AudioEncoderSizes:
    """Sizes and options of such an encoder."""

    n_layers: int
    n_mels: int  # bands of the spectrogram
    positions: int  # of what it gives; there are twice as many frames
    layer: LayerSizes

    @property
    def frames(self) -> int:
        """Frames of the spectrogram."""
        return self.positions * STRIDE


class AudioEncoder(Module[[Tensor], Tensor]):
    """An encoder as Whisper has it; ``dtype`` is that of the matrices.

    Attributes:
        position: ``[positions, hidden]``.
    """

    def __init__(self, sizes: AudioEncoderSizes, dtype: DType = DType.float32) -> None:
        layer, around = sizes.layer, TAPS // 2
        hidden = layer.hidden_size
        self.conv1 = Conv1d(TAPS, sizes.n_mels, hidden, padding=around, has_bias=True)
        self.conv2 = Conv1d(TAPS, hidden, hidden, stride=STRIDE, padding=around, has_bias=True)
        self.position = Weight("position", DType.float32, (sizes.positions, hidden))
        self.layers = ModuleList(PreNormLayer(layer, dtype) for _ in range(sizes.n_layers))
        self.norm = LayerNorm(hidden, eps=layer.norm_eps)

    def forward(self, input_features: Tensor) -> Tensor:
        """Map ``[batch, n_mels, frames]`` to ``[batch, positions, hidden]``."""
        # The convolutions are followed by the exact GELU whatever the layers have.
        x = ops.gelu(self.conv1(input_features.permute([0, 2, 1])))
        x = ops.gelu(self.conv2(x)) + self.position
        for layer in self.layers:
            x = layer(x, None, None)
        return self.norm(x)
