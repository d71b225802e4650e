"""Images as tokens: patches with positions, behind a class token and registers."""

from __future__ import annotations

from maxtool.architectures.image_encoder_config import ImageEncoderConfig
from maxtool.dtype import DType
from maxtool.graph import Tensor, Weight, ops
from maxtool.nn import Linear, Module

# The derivative of torch's cubic filters at distance 1: of the plain, and of the antialiasing one.
CUBIC, ANTIALIASED = -0.75, -0.5


class ImageEmbedding(Module[[Tensor], Tensor]):
    """Tokens of images, their positions resized where images are of another size.

    Attributes:
        patch: The product with each patch, whose pixels lie by channel, row and column.
        position: ``[n_patches, hidden]``, row by row of the image.
        class_token: ``[hidden]``, or None; ``class_position`` likewise.
        registers: ``[n_registers, hidden]``, or None.
    """

    def __init__(self, config: ImageEncoderConfig, dtype: DType) -> None:
        hidden, self.config = config.hidden_size, config
        pixels = config.n_channels * config.patch_size**2
        self.patch = Linear(pixels, hidden, dtype, has_bias=config.patch_bias)
        self.position = Weight("position", DType.float32, (config.n_patches, hidden))
        self.class_token = _vector("class_token", config)
        self.class_position = _vector("class_position", config)
        self.registers = (
            Weight("registers", DType.float32, (config.n_registers, hidden))
            if config.n_registers
            else None
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Map ``[batch, channels, height, width]`` to ``[batch, seq, hidden]``."""
        x = self.patch(self._patches(pixel_values)) + self._positions()
        if self.class_token is None or self.class_position is None:
            return x
        rows = [(self.class_token + self.class_position).reshape([1, self.config.hidden_size])]
        rows += [] if self.registers is None else [self.registers]
        return ops.concat([*(_repeated(row, x) for row in rows), x], 1)

    def _patches(self, pixel_values: Tensor) -> Tensor:
        """The pixels of each patch, ``[batch, patches, channels * size * size]``."""
        size, channels = self.config.patch_size, self.config.n_channels
        batch, grid = pixel_values.shape[0], self.config.side // size
        whole = pixel_values[:, :, : grid * size, : grid * size]
        parts = whole.reshape([batch, channels, grid, size, grid, size])
        by_patch = parts.permute([0, 2, 4, 1, 3, 5])
        return by_patch.reshape([batch, grid * grid, channels * size * size])

    def _positions(self) -> Tensor:
        """The table of positions, resized as transformers does to the grid of the images."""
        hidden, size = self.config.hidden_size, self.config.patch_size
        trained, wanted = self.config.image_size // size, self.config.side // size
        table = self.position.reshape([1, trained, trained, hidden])
        smooth = self.config.position_antialias
        if wanted == trained:
            return self.position
        resized = ops.resize(
            table,
            [wanted, wanted],
            [1, 2],
            "cubic",
            cubic_coefficient=ANTIALIASED if smooth else CUBIC,
            antialias=smooth,
            exclude_outside=smooth,
        )
        return resized.reshape([wanted * wanted, hidden])


def _vector(name: str, config: ImageEncoderConfig) -> Weight | None:
    return Weight(name, DType.float32, (config.hidden_size,)) if config.class_token else None


def _repeated(row: Tensor, x: Tensor) -> Tensor:
    """Tokens ``[some, hidden]`` before those of each image of ``x [batch, seq, hidden]``."""
    tokens = row.reshape([1, *row.shape])
    return ops.broadcast_to(tokens, [x.shape[0], *row.shape])
