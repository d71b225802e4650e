"""The options of an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.architectures.bucket_checks import bucket_problems
from maxtool.architectures.config import MAX_POSITIONS, other_lengths, out_of_range, unsupported
from maxtool.architectures.decoder_sizes import chosen
from maxtool.architectures.dense_layers import dense_problems
from maxtool.architectures.mlp import MLPS
from maxtool.architectures.pooling import POOLINGS
from maxtool.architectures.pre_norm_layer import LayerSizes

TERMS = ("c2p", "p2c")
CHOICES = {
    "block": ("after", "pre"),
    "position": ("learned", "rope", "none"),
    "mlp": tuple(MLPS),
    "hidden_act": tuple(ACTIVATIONS),
    "pooling": tuple(POOLINGS),
    "classifier_pooling": ("mean", "cls"),
    "classifier_act": tuple(ACTIVATIONS),
    "conv_act": tuple(ACTIVATIONS),
    "scores": ("softmax", "sigmoid", "none"),
}


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The options of an encoder; those without a comment mean what they mean in a decoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    # Where norms are: ``after`` the sums, as BERT has them; ``pre``: before attention and MLP, but
    # for the first attention, and behind the last layer (ModernBERT).
    block: str = "after"
    position: str = (
        "learned"  # ``learned``: a table of positions; ``rope``: heads are rotated; ``none``
    )
    position_offset: int = 0  # rows of that table before the one of the first token
    # The token that takes no position where positions count tokens (RoBERTa); None where they count
    # all places.
    pad_token_id: int | None = None
    # How many buckets of distances between tokens have biases of scores, the same in all layers;
    # None for no biases. ``relative_distance`` is that from which on all are in the last one.
    relative_buckets: int | None = None
    relative_distance: int | None = None
    relative_rows: int | None = (
        None  # rows of the table of biases, where there are more than buckets
    )
    # What queries (``c2p``) and keys (``p2c``) are compared with beside each other: vectors of the
    # distances between tokens (DeBERTa); None: with nothing. Scores are divided by the root of
    # ``head_dim`` times one more than there are terms, even where there are no vectors.
    distance_terms: tuple[str, ...] | None = None
    # From which distance on all have one vector, each way; None: there are no vectors.
    distance_limit: int | None = None
    # How many vectors there are each way where far distances share some; None: one for each.
    distance_buckets: int | None = None
    distance_shared: bool = False  # whether layers project them as they do tokens
    distance_norm: bool = False  # whether a norm is over each of them
    rope_theta: float = 10000.0
    rope_factor: float = 1.0  # what positions are divided by
    rope_local_theta: float | None = None  # that of layers with a window; None: the same
    # Layers in which a token sees ``sliding_window // 2`` tokens before itself and as many behind;
    # None: all, if there is a window.
    sliding_layers: tuple[bool, ...] | None = None
    sliding_window: int | None = None
    # Whether padding begins as zeros and sees nothing, so that it takes the mean of all (DeBERTa).
    # Otherwise it sees what tokens do.
    blank_padding: bool = False
    # The width of the tables of tokens, positions and types, where a layer widens their sum.
    embedding_size: int | None = None
    # Whether that layer, which then has no bias, comes before the norm of the sum and not behind.
    widened_first: bool = False
    # How many tokens a convolution beside the first layer reads, odd; None: there is none.
    conv_taps: int | None = None
    conv_groups: int = 1  # parts of the channels, each convolved for itself
    conv_act: str = "tanh"
    token_types: int = 0  # rows of the table of token types (segments); 0 for no table
    mlp: str = "plain"
    hidden_act: str = "gelu"
    qkv_bias: bool = True
    o_bias: bool = True
    mlp_bias: bool = True
    down_bias: bool | None = None  # of the MLP's last matrix; None: as ``mlp_bias``
    norm_bias: bool = True
    pooler: bool = False  # whether there is BERT's pooler, a layer on the first token
    # How ``embed`` makes one vector of all tokens: ``mean``, ``cls`` (the first one's) or ``max``;
    # None, where a checkpoint does not say, is ``mean``.
    pooling: str | None = None
    # Of each layer behind the pooling how wide its output is, whether it has a bias, and its
    # activation: a name in ``DENSE_ACTIVATIONS``; None where there is no such layer.
    dense_features: tuple[int, ...] | None = None
    dense_biases: tuple[bool, ...] | None = None
    dense_activations: tuple[str, ...] | None = None
    n_labels: int = 0  # classes that a head tells apart, or 1 for a score; 0 for no head
    labels: tuple[str, ...] | None = None  # their names
    # How the head makes one vector of all tokens, ``mean`` or ``cls``; a pooler makes its own.
    classifier_pooling: str | None = None
    # The activation of a layer before the head's last, ``tanh`` too; None where there is no layer,
    # and the head takes what a pooler makes.
    classifier_act: str | None = None
    classifier_bias: bool = True  # of that layer
    classifier_norm: bool = False  # whether a norm follows it
    # What makes scores of logits: ``softmax``, ``sigmoid`` or ``none``; None is a sigmoid of one
    # label, and a softmax of several.
    scores: str | None = None
    normalize: bool = False  # whether ``embed`` scales that vector to length 1
    # Positions that texts are cut to, where they are fewer than ``context_length``.
    max_length: int | None = None
    # The name of the prompt, of those that a checkpoint has, that is put before each text.
    default_prompt: str | None = None

    @property
    def has_distances(self) -> bool:
        """Return whether there are vectors of distances, and a term that takes them."""
        return self.distance_limit is not None and bool(self.distance_terms)

    @property
    def distance_span(self) -> int:
        """The number of vectors of distances each way."""
        return self.distance_buckets or self.distance_limit or 0

    @property
    def score_scale(self) -> float | None:
        """The factor of scores; None is ``head_dim ** -0.5``."""
        terms = self.distance_terms
        return None if terms is None else (self.head_dim * (1 + len(terms))) ** -0.5

    def has_window(self, layer: int) -> bool:
        """Return whether a layer sees only the tokens near by."""
        return self.sliding_window is not None and chosen(self.sliding_layers, layer)

    def layer(self, index: int) -> LayerSizes:
        """Sizes of a layer whose norms are before its parts."""
        return LayerSizes(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            n_heads=self.n_heads,
            head_dim=self.head_dim,
            norm_eps=self.norm_eps,
            hidden_act=self.hidden_act,
            mlp=self.mlp,
            qkv_bias=self.qkv_bias,
            o_bias=self.o_bias,
            mlp_bias=self.mlp_bias,
            norm_bias=self.norm_bias,
            attn_norm=index > 0,
        )

    def problems(self) -> list[str]:
        """Return the problems with the values, one line each."""
        found = [*self._sizes(), *unsupported(self, CHOICES)]
        found += [*self._windows(), *self._relative(), *self._distances(), *self._blank()]
        return [*found, *self._convolution(), *self._classifier(), *dense_problems(self)]

    def _sizes(self) -> Iterator[str]:
        positive = (
            "vocab_size hidden_size intermediate_size n_layers n_heads head_dim context_length"
            " rope_theta rope_factor rope_local_theta sliding_window embedding_size max_length"
            " relative_buckets relative_distance relative_rows distance_limit distance_buckets"
            " conv_taps conv_groups"
        )
        not_negative = ("position_offset", "token_types", "norm_eps", "n_labels")
        yield from out_of_range(self, positive.split(), not_negative)
        if self.context_length > MAX_POSITIONS - self.position_offset:
            yield f"context_length is {self.context_length}, above {MAX_POSITIONS}"
        if self.position == "rope" and self.head_dim % 2:
            yield f"head_dim {self.head_dim} is odd"
        if self.down_bias is not None and self.block != "after":
            yield "down_bias goes with block 'after' alone"
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            yield f"pad_token_id is {self.pad_token_id}, of {self.vocab_size} tokens"

    def _windows(self) -> Iterator[str]:
        yield from other_lengths(self, {"sliding_layers": self.n_layers})
        if any(self.sliding_layers or ()) and self.sliding_window is None:
            yield "there are layers with a window, and no sliding_window"

    def _relative(self) -> Iterator[str]:
        if (buckets := self.relative_buckets) is None:
            return
        if self.relative_distance is None:
            yield "relative_buckets needs relative_distance"
        else:
            yield from bucket_problems(buckets, self.relative_distance)
        if (self.relative_rows or buckets) < buckets:
            yield f"relative_rows is {self.relative_rows}: fewer than the {buckets} buckets"

    def _distances(self) -> Iterator[str]:
        terms = self.distance_terms or ()
        if {*terms} - {*TERMS} or len({*terms}) != len(terms):
            yield f"distance_terms {', '.join(terms)}: each is one of {', '.join(TERMS)}, once"
        buckets, limit = self.distance_buckets, self.distance_limit
        if limit is None or not terms:
            return
        if buckets is not None and (buckets < 2 or limit <= buckets // 2 + 1):
            need = "there must be 2 at least, and a limit beyond half of them and one"
            yield f"distance_buckets {buckets} with distance_limit {limit}: {need}"
        if not self.blank_padding or self.block != "after" or self.position == "rope":
            yield "distance_limit goes with blank_padding and block 'after' alone, not with 'rope'"

    def _blank(self) -> Iterator[str]:
        if self.blank_padding and (self.relative_buckets or self.sliding_window):
            yield "blank_padding goes neither with relative_buckets nor with a window"

    def _convolution(self) -> Iterator[str]:
        if (taps := self.conv_taps) is None:
            return
        if not self.blank_padding:
            yield "conv_taps needs blank_padding"
        if taps % 2 == 0:
            yield f"conv_taps is {taps}, which is even"
        if self.hidden_size % self.conv_groups:
            yield f"conv_groups is {self.conv_groups}, which does not divide {self.hidden_size}"

    def _classifier(self) -> Iterator[str]:
        if self.n_labels and self.classifier_act is None and not self.pooler:
            yield "there is a classifier, and no pooler that makes the vector it takes"

    @property
    def named_labels(self) -> tuple[str, ...] | None:
        """The names of the labels; None where there is not one for each."""
        return self.labels if len(self.labels or ()) == self.n_labels else None

    @property
    def scoring(self) -> str:
        """The function that makes scores of logits, as transformers' pipeline chooses it."""
        return self.scores or ("sigmoid" if self.n_labels == 1 else "softmax")
