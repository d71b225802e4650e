"""ConvNeXt (Liu et al. 2022, arXiv:2201.03545) and its second version (arXiv:2301.00808)."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.config import typed
from maxtool.architectures.convnext_config import ConvNextConfig
from maxtool.architectures.image_convolution import ImageConvolution, Window
from maxtool.architectures.staged_encoder import StagedEncoder
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import LayerNorm, Linear, Module, ModuleList

EPS = 1e-6
"""What all norms but the last add to a variance, and the response norm to a mean."""
WIDENING = 4
"""How many times wider a layer is inside."""


class ConvNextBody(Module[[Tensor], Tensor]):
    """The patches and all stages, channels last."""

    def __init__(self, config: ConvNextConfig, dtype: DType) -> None:
        first, size = config.hidden_sizes[0], config.patch_size
        self.stem = ImageConvolution(config.n_channels, first, Window(size, size))
        self.stem_norm = LayerNorm(first, eps=EPS)
        self.stages = ModuleList(
            ConvNextStage(config, stage, dtype) for stage in range(len(config.depths))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to the features of the last stage."""
        x = self.stem_norm(self.stem(x))
        for stage in self.stages:
            x = stage.coarser(x)
            for layer in stage.layers:
                x = layer(x)
        return x


class ConvNextStage(Module[[Tensor], Tensor]):
    """Layers behind a step that halves rows and columns, which the first stage does not have."""

    def __init__(self, config: ConvNextConfig, stage: int, dtype: DType) -> None:
        before, hidden = config.hidden_sizes[stage - 1], config.hidden_sizes[stage]
        self.down_norm = LayerNorm(before, eps=EPS) if stage else None
        self.down = ImageConvolution(before, hidden, Window(2, 2)) if stage else None
        self.layers = ModuleList(
            ConvNextLayer(config, hidden, dtype) for _ in range(config.depths[stage])
        )

    def coarser(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to what the layers see."""
        return x if self.down_norm is None or self.down is None else self.down(self.down_norm(x))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to the stage's features."""
        x = self.coarser(x)
        for layer in self.layers:
            x = layer(x)
        return x


class ConvNextLayer(Module[[Tensor], Tensor]):
    """A wide convolution of each channel, a norm, and an MLP, added to their input.

    Attributes:
        scale: ``[hidden]``, the factors of what is added, or None.
    """

    def __init__(self, config: ConvNextConfig, hidden: int, dtype: DType) -> None:
        inner = WIDENING * hidden
        self.depthwise = ImageConvolution(hidden, hidden, Window(7, 1, 3, hidden))
        self.norm = LayerNorm(hidden, eps=EPS)
        self.up = Linear(hidden, inner, dtype, has_bias=True)
        self.response = ResponseNorm(inner) if config.response_norm else None
        self.down = Linear(inner, hidden, dtype, has_bias=True)
        self.scale = Weight("scale", DType.float32, (hidden,)) if config.layer_scale else None
        self.activation = config.hidden_act

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to the same shape."""
        inner = ACTIVATIONS[self.activation](self.up(self.norm(self.depthwise(x))))
        added = self.down(inner if self.response is None else self.response(inner))
        return x + (added if self.scale is None else self.scale * added)


class ResponseNorm(Module[[Tensor], Tensor]):
    """Channels weighed by their size beside that of the others (global response normalization).

    Attributes:
        weight: ``[channels]``, float32; ``bias`` likewise.
    """

    def __init__(self, channels: int) -> None:
        self.weight = Weight("weight", DType.float32, (channels,))
        self.bias = Weight("bias", DType.float32, (channels,))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[batch, height, width, channels]`` to the same shape."""
        size = ops.sqrt(ops.sum(x * x, [1, 2]))
        share = size / (ops.mean(size, -1) + EPS)
        return x * (self.weight * share + 1.0) + self.bias


def build(
    config: Mapping[str, object],
    dtype: DType = DType.float32,
    context: int | None = None,  # noqa: ARG001 - images have no context
) -> StagedEncoder:
    """A ConvNeXt with its weights declared and not bound.

    Raises:
        ConfigurationError: Listing all that is wrong with the configuration.
    """
    options = typed(ConvNextConfig, config, ConvNextConfig.problems)
    norm = LayerNorm(options.hidden_size, eps=options.norm_eps)
    return StagedEncoder(options, ConvNextBody(options, dtype), norm, dtype)
