"""The options of a ConvNeXt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.config import out_of_range, unsupported
from maxtool.architectures.staged_config import StagedConfig

CHOICES = {"hidden_act": tuple(ACTIVATIONS)}


@dataclass(frozen=True, kw_only=True)
class ConvNextConfig(StagedConfig):
    """The options of a ConvNeXt, whose stages halve rows and columns, all but the first."""

    n_stages: int
    patch_size: int  # pixels of a side of a patch, of which the first stage sees one vector
    norm_eps: float  # of the last norm; that of all others is fixed
    hidden_act: str = "gelu"
    layer_scale: bool = True  # whether each channel of what a layer adds has a factor
    response_norm: bool = False  # whether layers weigh channels by their size, as in V2

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        return [*self.stage_problems(), *unsupported(self, CHOICES), *self._rows()]

    def _rows(self) -> Iterator[str]:
        yield from out_of_range(self, ("patch_size", "n_stages"), ("norm_eps",))
        if self.n_stages != len(self.depths):
            yield f"n_stages is {self.n_stages}, and depths has {len(self.depths)} values"
        rows = self.side // max(self.patch_size, 1)
        if not rows >> (len(self.depths) - 1):
            halved = f"rows of patches, which {len(self.depths)} stages cannot halve so often"
            yield f"images of {self.side} pixels have {rows} {halved}"
