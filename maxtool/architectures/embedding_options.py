"""Options of decoders that make vectors of texts in the place of further tokens."""

from __future__ import annotations

from dataclasses import dataclass

from maxtool.architectures.decoder_sizes import DecoderSizes


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(DecoderSizes):
    """Ways from the vectors of tokens to that of a text, as sentence-transformers has them."""

    # How ``embed`` makes one vector of all tokens, ``last``, ``mean``, ``cls`` or ``max``; None for
    # a decoder that writes texts, which has a head, and where a bidirectional one does not say.
    pooling: str | None = None
    # Whether every token sees those behind it too; then there is no head either, and ``pooling`` is
    # ``mean`` where a checkpoint does not say. A window is then ``sliding_window // 2`` tokens
    # before a token and as many behind, and only where ``centred_windows`` says so.
    bidirectional: bool = False
    centred_windows: bool = False
    # Of each layer behind the pooling how wide its output is, whether it has a bias, and its
    # activation: a name in ``DENSE_ACTIVATIONS``; None where there is no such layer.
    dense_features: tuple[int, ...] | None = None
    dense_biases: tuple[bool, ...] | None = None
    dense_activations: tuple[str, ...] | None = None
    normalize: bool = False  # whether ``embed`` scales that vector to length 1
    # Positions that texts are cut to, where they are fewer than ``context_length``.
    max_length: int | None = None
    # The name of the prompt, of those that a checkpoint has, that is put before each text.
    default_prompt: str | None = None

    @property
    def makes_vectors(self) -> bool:
        """Return whether it has no head, and writes no texts."""
        return self.pooling is not None or self.bidirectional
