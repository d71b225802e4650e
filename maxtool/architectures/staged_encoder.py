"""An encoder of images in stages: features of the last, their mean, and perhaps classes."""

from __future__ import annotations

from collections.abc import Mapping

from maxtool.architectures.entry import Entry, Limit
from maxtool.architectures.image_model import image_entries
from maxtool.architectures.pooling import of_length_1
from maxtool.architectures.staged_config import StagedConfig
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import Tensor, ops
from maxtool.nn import LayerNorm, Linear, Module

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
"""Orders of dimensions that put channels first, and last."""


class StagedEncoder(Module[[Tensor], tuple[Tensor, ...]]):
    """The stages of a convolutional network, which see channels last, and what is made of theirs.

    Args:
        config: Its options.
        body: Maps images to the features of the last stage, with channels last in both.
        norm: What the mean of the features goes through, if there is such a norm.
        dtype: That of the matrices.
    """

    def __init__(
        self,
        config: StagedConfig,
        body: Module[[Tensor], Tensor],
        norm: LayerNorm | None,
        dtype: DType,
    ) -> None:
        self.config, self.body, self.norm = config, body, norm
        self.classifier = (
            Linear(config.hidden_size, config.n_labels, dtype, has_bias=True)
            if config.n_labels
            else None
        )

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, ...]:
        """The features of every place, and their mean.

        Args:
            pixel_values: ``[batch, channels, height, width]``, normalised.

        Returns:
            ``[batch, hidden, rows, columns]``, and ``[batch, hidden]``.
        """
        x = self._seen(pixel_values)
        return ops.permute(x, FIRST), self._pooled(x)

    def vector(self, pixel_values: Tensor) -> Tensor:
        """One vector for each image, ``[batch, hidden]``."""
        pooled = self._pooled(self._seen(pixel_values))
        return of_length_1(pooled) if self.config.normalize else pooled

    def classify(self, pixel_values: Tensor) -> Tensor:
        """A logit for each class, ``[batch, n_labels]``."""
        if self.classifier is None:
            raise ConfigurationError("the model has no classifier")
        return self.classifier(self._pooled(self._seen(pixel_values)))

    @property
    def sizes(self) -> StagedConfig:
        """The sizes of images."""
        return self.config

    @property
    def features(self) -> tuple[str, ...]:
        """The names of what it gives when it is called."""
        return ("last_hidden_state", "pooler_output")

    @property
    def context(self) -> None:
        """Return None: images have no positions to choose."""

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Limits of inputs: none, as pixels may be any numbers."""
        return {}

    @property
    def facts(self) -> Mapping[str, object]:
        """Sizes, and how ``embed`` makes one vector."""
        names = ("hidden_size", "n_layers", "normalize")
        facts = {name: getattr(self.config, name) for name in names}
        more = {"image_size": self.config.side, "leading_tokens": 0}
        return {**facts, "pooling": "features", "projection_size": 0, **more}

    def entries(self) -> tuple[Entry, ...]:
        """``forward``, ``embed``, and ``classify`` where there is a classifier."""
        return image_entries(self)

    def _seen(self, pixel_values: Tensor) -> Tensor:
        """The features of the last stage, ``[batch, rows, columns, hidden]``."""
        return self.body(ops.permute(pixel_values, LAST))

    def _pooled(self, x: Tensor) -> Tensor:
        mean = ops.mean(x, [1, 2]).reshape([x.shape[0], self.config.hidden_size])
        return mean if self.norm is None else self.norm(mean)
