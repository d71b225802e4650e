"""Rotary position embedding: where a graph takes the angles from.

No source of angles is a module: its tables are derived from the configuration and stand in no
checkpoint. They are computed when they are compiled or stored, not when a model is planned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from maxtool.architectures import rope_scaling
from maxtool.architectures.decoder_config import DecoderConfig
from maxtool.architectures.rope_scaling import Frequencies
from maxtool.dtype import DType
from maxtool.graph import DerivedWeight, Tensor, ops

Table: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float32]]
# Cosines and sines, [positions, dim / 2] each, and the row of the first token (int32 [1]).
Angles: TypeAlias = tuple[Tensor, Tensor, Tensor]


class Turn(NamedTuple):
    """The positions of tokens, as attention is told of them.

    Attributes:
        angles: Those of queries and keys; None without rotary positions.
        factor: What queries are multiplied by, if anything.
        biases: What is added to scores, ``[1, heads, queries, keys]``, if anything.
        mask: Which tokens each sees, where that is not those before it: bool, as
            :func:`maxtool.graph.ops.scaled_dot_product_attention` has it.
    """

    angles: Angles | None = None
    factor: Tensor | None = None
    biases: Tensor | None = None
    mask: Tensor | None = None


class RotaryTable:
    """Angles that depend on the position alone: tables ``[context, dim / 2]`` for every position.

    ``dim`` elements of a head are rotated, an even number, by ``frequencies`` in radians per
    position; cosines and sines are multiplied by ``factor``.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        context: int,
        frequencies: Callable[[], Frequencies],
        factor: float = 1.0,
    ) -> None:
        def values(function: np.ufunc) -> Table:
            positions = np.arange(context, dtype=np.float32)
            angles: Table = np.outer(positions, frequencies()).astype(np.float32, copy=False)
            function(angles, out=angles)  # in place: there may be many positions
            angles *= np.float32(factor)
            return angles

        def table(part: str, function: np.ufunc) -> DerivedWeight:
            shape = (context, dim // 2)
            return DerivedWeight(f"{name}.{part}", DType.float32, shape, lambda: values(function))

        self.cos, self.sin = table("cos", np.cos), table("sin", np.sin)

    @property
    def by_position(self) -> tuple[str, ...]:
        """The names of tables with a row for each position."""
        return self.cos.name, self.sin.name

    def angles(self, input_ids: Tensor, position: Tensor) -> Angles:
        """Cosine and sine of the angles of tokens ``[batch, seq]``, the first at ``position``.

        With positions ``[batch]`` there is one token in each row, and a row of each table for it.
        """
        tables = self.cos.on(input_ids.device), self.sin.on(input_ids.device)
        if position.shape == [1]:
            return *tables, position
        cos, sin = (ops.gather(table, position, 0) for table in tables)
        return cos, sin, Tensor([0], DType.int32, input_ids.device)


class RotaryByLength:
    """Angles that depend on the length of the sequence too: computed anew in each call.

    Keys in a cache keep the angles of the call that wrote them, as they do in transformers. Lengths
    up to ``original`` have the same frequencies, and so have those from ``longest`` on. Cosines and
    sines are multiplied by ``factor``, or by ``long_factor`` beyond ``original``.
    """

    # The names of tables with a row for each position: the row of a length is the last beyond that.
    by_position: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        dim: int,
        original: int,
        longest: int,
        frequencies: Callable[[int], Frequencies],
        factor: float,
        long_factor: float,
    ) -> None:
        lengths = range(original, longest + 1)
        self.table = DerivedWeight(
            f"{name}.frequencies",
            DType.float32,
            (len(lengths), dim // 2),
            lambda: np.stack([frequencies(length) for length in lengths]),
        )
        self.original = original
        self.factor, self.long_factor = factor, long_factor

    def angles(self, input_ids: Tensor, position: Tensor) -> Angles:
        """The angles as :meth:`RotaryTable.angles` gives them."""
        cos, sin = ops.rope_angles(
            input_ids,
            self.table.on(input_ids.device),
            position,
            original=self.original,
            factor=self.factor,
            long_factor=self.long_factor,
        )
        return cos, sin, Tensor([0], DType.int32, input_ids.device)


Rotary: TypeAlias = RotaryTable | RotaryByLength


def rotated(x: Tensor, angles: Angles, position: Tensor) -> Tensor:
    """Heads ``[batch, seq, heads, dim]`` of tokens, of which the first stands at ``position``.

    With positions ``[batch]`` the rows of the tables are those of the batch, of one token each.
    """
    if position.shape == [1]:
        return ops.rope(x, *angles)
    batch, _, *head = x.shape
    return ops.rope(x.reshape([1, batch, *head]), *angles).reshape(x.shape)


def make_rotaries(config: DecoderConfig, context: int) -> dict[bool, Rotary]:
    """The angles of local layers (True) and of others, as far as a decoder has such."""
    if config.position != "rope":
        return {}
    rotaries: dict[bool, Rotary] = {False: _scaled(config, context)}
    if (theta := config.rope_local_theta) is not None:
        dim = config.rotated_locally
        rotaries[True] = RotaryTable(
            "rope.local", dim, context, lambda: np.float32(1) / rope_scaling.waves(dim, theta)
        )
    return rotaries


def _scaled(config: DecoderConfig, context: int) -> Rotary:
    factor, original = rope_scaling.attention_factor(config), config.original_context
    dim, frequencies = config.rotated, partial(rope_scaling.frequencies, config)
    if config.rope_scaling not in rope_scaling.BY_LENGTH or context <= original:
        return RotaryTable("rope", dim, context, partial(frequencies, context), factor)
    longest = context if config.rope_scaling == "dynamic" else original + 1
    beyond = rope_scaling.long_attention_factor(config)
    return RotaryByLength("rope", dim, original, longest, frequencies, factor, beyond)
