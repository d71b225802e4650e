"""Options of encoders of images that look at them in stages, each coarser than the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maxtool.architectures.config import out_of_range

MOST_SIDE = 1 << 14
"""Pixels of a side of the largest images."""


@dataclass(frozen=True, kw_only=True)
class StagedConfig:
    """Sizes of such an encoder, and what it gives of an image."""

    hidden_sizes: tuple[int, ...]  # channels of each stage
    depths: tuple[int, ...]  # layers of each stage
    n_layers: int  # of all stages
    n_channels: int = 3
    image_size: int = 224  # pixels of a side, if nothing else is asked for
    input_size: int | None = None  # those of the images that it is compiled for
    normalize: bool = False  # whether ``embed`` scales a vector to length 1
    n_labels: int = 0  # classes of a classifier; 0 for none

    @property
    def side(self) -> int:
        """Pixels of a side of the images that it takes."""
        return self.input_size or self.image_size

    @property
    def hidden_size(self) -> int:
        """Channels of the last stage."""
        return self.hidden_sizes[-1]

    def stage_problems(self) -> Iterator[str]:
        """Yield the problems with the sizes of stages and images, one line each."""
        yield from out_of_range(self, ("n_channels", "image_size", "input_size"), ("n_labels",))
        if len(self.depths) != len(self.hidden_sizes):
            stages = f"{len(self.hidden_sizes)} stages by hidden_sizes"
            yield f"depths has {len(self.depths)} values for {stages}"
        if min(*self.depths, *self.hidden_sizes) < 1:
            yield "depths and hidden_sizes are 1 or more"
        if self.n_layers != sum(self.depths):
            yield f"n_layers is {self.n_layers}, and the stages have {sum(self.depths)} layers"
        if self.side > MOST_SIDE:
            yield f"images of {self.side} pixels are larger than {MOST_SIDE}"
