"""Options of positions: the rotary ones, their scalings, and what takes their place."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes, chosen


@dataclass(frozen=True, kw_only=True)
class RopeOptions(DecoderSizes):
    """Options of how a decoder knows where a token stands."""

    # ``rope``; ``learned``, a vector for each position, added to the embedding; ``sinusoidal``, one
    # of sines and cosines; ``alibi``, by which the score of a key grows with its position (Press et
    # al. 2021); ``relative``, by which it depends on how far the key stands from the query, in
    # buckets (T5); or ``none``.
    position: str = "rope"
    position_offset: int = 0  # vectors before that of the first position
    # The number of a sinusoidal vector that is zero instead, counted with those before the first.
    position_padding: int | None = None
    relative_buckets: int | None = None  # relative positions: how many buckets
    relative_distance: int | None = None  # and from which distance on all are in the last one
    relative_each: bool = False  # whether each layer has biases of its own, not one for all
    # How many elements of a head are rotated, the first ones; None for all.
    rotary_dim: int | None = None
    rope_theta: float = 10000.0  # the base of the rotary frequencies
    # How frequencies are changed for more positions than ``rope_original_context``: ``none``,
    # ``linear``, ``dynamic``, ``llama3``, ``yarn``, ``longrope`` or ``proportional``, each as
    # transformers computes it. All but ``none`` use some of the options below.
    rope_scaling: str = "none"
    # How many times more positions. For ``yarn`` and ``longrope``, where it only decides the
    # attention factor in the latter, None is ``context_length / rope_original_context``; the others
    # need it.
    rope_factor: float | None = None
    # Positions before scaling; ``context_length`` when None.
    rope_original_context: int | None = None
    # llama3: longer waves than the original context divided by this are stretched by
    # ``rope_factor``.
    rope_low_freq_factor: float = 1.0
    # llama3: shorter waves than the original context divided by this stay.
    rope_high_freq_factor: float = 4.0
    # yarn: rotations over the original context from which on a frequency stays; None for 32.
    rope_beta_fast: float | None = None
    # yarn: rotations up to which it is divided by ``rope_factor``; None for one.
    rope_beta_slow: float | None = None
    # yarn, longrope: what cosines and sines are multiplied by; None for what the scaling itself
    # suggests.
    rope_attention_factor: float | None = None
    # longrope: likewise, for sequences longer than the original context; None for the same.
    rope_long_attention_factor: float | None = None
    # yarn: with the next one, scales the suggested attention factor.
    rope_mscale: float | None = None
    rope_mscale_all_dim: float | None = None  # yarn: see there
    # yarn: whether the range of dimensions between the two betas is rounded to whole ones.
    rope_truncate: bool = True
    # longrope: divisors of the frequencies, ``rotary_dim / 2`` of them, while a sequence is no
    # longer than the original context.
    rope_short_factors: tuple[float, ...] | None = None
    rope_long_factors: tuple[float, ...] | None = None  # longrope: likewise, for longer sequences
    # proportional: how many pairs of a head are rotated, the first ones; None for all.
    rope_pairs: int | None = None
    rope_reversed: bool = False  # whether heads are rotated the other way round (nanochat)
    rope_layers: tuple[bool, ...] | None = None  # which layers have rotary positions; all when None
    # The base of the sliding layers, whose frequencies are not scaled; None when they are like the
    # others.
    rope_local_theta: float | None = None
    rotary_local_dim: int | None = None  # how many elements are rotated there; all when None

    @property
    def rotated(self) -> int:
        """Elements of a head that are rotated."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def original_context(self) -> int:
        """Positions before the rotary frequencies were scaled."""
        return self.rope_original_context or self.context_length

    @property
    def relative_tables(self) -> int:
        """The number of layers that have biases of relative positions of their own."""
        if self.position != "relative":
            return 0
        return self.n_layers if self.relative_each else 1

    def has_rope(self, layer: int) -> bool:
        """Return whether a layer has rotary positions."""
        return self.position == "rope" and chosen(self.rope_layers, layer)
