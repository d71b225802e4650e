"""The options of a residual network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.config import out_of_range, unsupported
from maxtool.architectures.staged_config import StagedConfig

REDUCTION = 4
"""How many times narrower a bottleneck is than what goes into it."""
CHOICES = {"layer_type": ("basic", "bottleneck"), "hidden_act": tuple(ACTIVATIONS)}


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(StagedConfig):
    """The options of a residual network."""

    embedding_size: int  # channels before the first stage
    # Two convolutions of 3 x 3, or one between two of single pixels, the first of which narrows.
    layer_type: str = "bottleneck"
    hidden_act: str = "relu"  # of the first convolution, and of what layers add up
    downsample_in_first_stage: bool = False  # whether the first stage halves rows and columns too
    # Whether a bottleneck skips pixels in its first convolution, and not in that of 3 x 3.
    downsample_in_bottleneck: bool = False

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        return [*self.stage_problems(), *unsupported(self, CHOICES), *self._widths()]

    def _widths(self) -> Iterator[str]:
        yield from out_of_range(self, ("embedding_size",), ())
        narrow = [size for size in self.hidden_sizes if size < REDUCTION]
        if self.layer_type == "bottleneck" and narrow:
            yield f"a bottleneck of {narrow[0]} channels has no quarter of them"
