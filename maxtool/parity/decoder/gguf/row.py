"""The form of the rows that say how the files of an architecture are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from maxtool.parity.decoder.settings import Sizes
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint

Options = dict[str, Any]
RMS_EPS, LAYER_EPS = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


@dataclass(frozen=True, slots=True)
class Row:
    """How the files of one architecture are read.

    Attributes:
        fixed: Settings that all its models have in common.
        eps: Key of what norms add under their root.
        pattern: Every so many layers there is one without a window; 0 for a window in all.
        window: The window where no key says it, None for none.
        without_rope: Every so many layers there is one that does not rotate; 0 for none.
        rope: Whether heads rotate.
        local_rope: Whether layers with a window have a base of their own, without scaling.
        more: Further settings, from the metadata, the sizes and the checkpoint.
    """

    fixed: Options = field(default_factory=dict)
    eps: str = RMS_EPS
    pattern: int = 0
    window: int | None = None
    without_rope: int = 0
    rope: bool = True
    local_rope: bool = False
    more: Callable[[Reader, Sizes, Checkpoint], Options] | None = None
