"""Masks and angles: what a layer of an encoder is given of the positions of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

import numpy as np

from maxtool.architectures.distance_vectors import DistanceRows, Places
from maxtool.architectures.encoder_config import EncoderConfig
from maxtool.architectures.entry import Table
from maxtool.architectures.relative_positions import RelativeBias, RelativePositions
from maxtool.architectures.rope_scaling import Frequencies, waves
from maxtool.architectures.rotary_angles import Angles, RotaryTable
from maxtool.architectures.token_masks import between, near, shown
from maxtool.dtype import DType
from maxtool.graph import Tensor, ops

# The mask of an attention, and the angles of its queries and keys if they are rotated, or where it
# finds what they score with distances.
View: TypeAlias = tuple[Tensor, Angles | Places | None]


class Views:
    """The views of the two kinds of layers: True stands for those with a window.

    Args:
        config: The encoder's.
        context: Positions to have angles for.
    """

    def __init__(self, config: EncoderConfig, context: int) -> None:
        self.kinds = {config.has_window(layer) for layer in range(config.n_layers)}
        self._reach = (config.sliding_window or 0) // 2
        self._blank = config.blank_padding
        self._rotaries = _rotaries(config, context)
        self._distances = (
            RelativePositions("relative", context, config, causal=False)
            if config.relative_buckets
            else None
        )
        self._rows = DistanceRows(config, context) if config.has_distances else None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of positions."""
        used = dict.fromkeys(table for kind, table in self._rotaries.items() if kind in self.kinds)
        angles = (Table(name, "context") for rotary in used for name in rotary.by_position)
        others = (each.table for each in (self._distances, self._rows) if each is not None)
        return (*angles, *others)

    def of(
        self, input_ids: Tensor, attention_mask: Tensor, relative: RelativeBias | None = None
    ) -> dict[bool, View]:
        """The views of a call; both inputs are ``[batch, seq]``, the mask is 1 for a token.

        Where there are biases for distances, the masks are these, and hide by infinities.
        """
        hides = between if self._blank else shown
        masks = {False: hides(attention_mask)}
        if True in self.kinds:
            masks[True] = ops.logical_and(masks[False], near(input_ids, self._reach))
        start, seq = Tensor([0], DType.int32, input_ids.device), input_ids.shape[1]
        if relative is not None and self._distances is not None:
            biases = relative(self._distances.of(start, seq, seq))
            masks = {kind: ops.where(mask, biases, -np.inf) for kind, mask in masks.items()}

        places = None if self._rows is None else self._rows.of(input_ids)

        def given(kind: bool) -> Angles | Places | None:
            return self._rotaries[kind].angles(input_ids, start) if self._rotaries else places

        return {kind: (masks[kind], given(kind)) for kind in self.kinds}


def _rotaries(config: EncoderConfig, context: int) -> Mapping[bool, RotaryTable]:
    """The angles of each kind of layer; none where positions are learned."""
    if config.position != "rope":
        return {}
    dim, factor, local = config.head_dim, config.rope_factor, config.rope_local_theta
    frequencies = partial(_frequencies, dim, factor)
    plain = RotaryTable("rope", dim, context, partial(frequencies, config.rope_theta))
    if local is None:
        return {False: plain, True: plain}
    other = RotaryTable("rope.local", dim, context, partial(frequencies, local))
    return {False: plain, True: other}


def _frequencies(dim: int, factor: float, theta: float) -> Frequencies:
    """Radians per position of each pair."""
    return np.float32(1) / waves(dim, theta) / np.float32(factor)
