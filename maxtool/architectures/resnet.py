"""Residual networks (He et al. 2015, arXiv:1512.03385), as transformers' ResNet has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.config import typed
from maxtool.architectures.image_convolution import NormedConvolution, Window
from maxtool.architectures.resnet_config import REDUCTION, ResNetConfig
from maxtool.architectures.staged_encoder import StagedEncoder
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops
from maxtool.nn import Module, ModuleList


class ResNetBody(Module[[Tensor], Tensor]):
    """The stem and all stages, channels last."""

    def __init__(self, config: ResNetConfig) -> None:
        self.activation = config.hidden_act
        window = Window(7, 2, 3)
        self.stem = NormedConvolution(config.n_channels, config.embedding_size, window)
        self.stages = ModuleList(
            ModuleList(_layers(config, stage)) for stage in range(len(config.depths))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to the features of the last stage."""
        x = ACTIVATIONS[self.activation](self.stem(x))
        x = ops.max_pool2d(x, 3, 2, padding=1)
        for stage in self.stages:
            for layer in stage:
                x = layer(x)
        return x


class ResNetLayer(Module[[Tensor], Tensor]):
    """Convolutions in turn, added to their input, or to its projection where sizes differ.

    Between them is a ReLU, whatever the activation of the sum.
    """

    def __init__(self, config: ResNetConfig, channels: int, features: int, stride: int) -> None:
        self.activation = config.hidden_act
        is_alike = channels == features and stride == 1
        self.shortcut = (
            None if is_alike else NormedConvolution(channels, features, Window(1, stride))
        )
        self.convs = ModuleList(_convolutions(config, channels, features, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to features, in fewer rows with a stride."""
        *first, last = self.convs
        inner = x
        for conv in first:
            inner = ops.relu(conv(inner))
        total = last(inner) + (x if self.shortcut is None else self.shortcut(x))
        return ACTIVATIONS[self.activation](total)


def _layers(config: ResNetConfig, stage: int) -> Iterator[ResNetLayer]:
    """The layers of a stage, the first of which changes sizes."""
    widths = (config.embedding_size, *config.hidden_sizes)
    features = widths[stage + 1]
    stride = 2 if stage or config.downsample_in_first_stage else 1
    yield ResNetLayer(config, widths[stage], features, stride)
    for _ in range(config.depths[stage] - 1):
        yield ResNetLayer(config, features, features, 1)


def _convolutions(
    config: ResNetConfig, channels: int, features: int, stride: int
) -> Iterator[NormedConvolution]:
    if config.layer_type == "basic":
        yield NormedConvolution(channels, features, Window(3, stride, 1))
        yield NormedConvolution(features, features, Window(3, 1, 1))
        return
    inner = features // REDUCTION
    first, second = (stride, 1) if config.downsample_in_bottleneck else (1, stride)
    yield NormedConvolution(channels, inner, Window(1, first))
    yield NormedConvolution(inner, inner, Window(3, second, 1))
    yield NormedConvolution(inner, features, Window(1))


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,  # noqa: ARG001 - images have no context
) -> StagedEncoder:
    """A residual network with its weights declared and not bound.

    Raises:
        ConfigurationError: Listing all that is wrong with the configuration.
    """
    options = typed(ResNetConfig, config, ResNetConfig.problems)
    return StagedEncoder(options, ResNetBody(options), None, dtype)
