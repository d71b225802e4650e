"""Options of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434)."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class LatentOptions(DecoderSizes):
    """Options of keys and values that are made of one latent, which is what a cache holds.

    Heads of queries and keys have ``plain_dim`` elements that know of no position, those of keys
    made of the latent, and ``rotary_dim`` more that are rotated where positions are, in a key that
    all heads share.
    """

    # Width of the latent that keys and values are made of; None where they have projections of
    # their own, and the next options mean nothing.
    latent_size: int | None = None
    query_latent_size: int | None = None  # width of one that queries are made of; None for none
    plain_dim: int | None = None  # ``head_dim`` is as much, and ``rotary_dim``
    latent_eps: float | None = None  # as ``norm_eps``, in the norms of latents; that when None
