"""What a decoder computes: its sizes and options, in one form for every family and dialect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from maxtool.errors import ConfigurationError
from maxtool.parity.decoder.names import Names
from maxtool.parity.decoder.rope import Rope
from maxtool.weights.checkpoint import Checkpoint

Block = Literal["pre", "post", "sandwich", "parallel", "parallel_shared"]

QKV, ATTENTION, MLP = ("q", "k", "v"), ("q", "k", "v", "o"), ("gate", "up", "down")
EVERY = (*ATTENTION, *MLP)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Extents of the tensors."""

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Experts:
    """Layers whose MLP is a choice of experts.

    Attributes:
        count: How many there are.
        used: How many of them a token goes through.
        inner: Inner features of each.
        normalized: Whether the weights of those used are made to sum to one.
        layers: For each layer whether its MLP is one of these.
    """

    count: int
    used: int
    inner: int
    normalized: bool
    layers: tuple[bool, ...]


@dataclass(frozen=True)
class Settings:
    """A decoder's sizes and options, as one checkpoint's own configuration states them.

    Attributes:
        names: What the checkpoint calls the tensors.
        sizes: Extents of the tensors.
        eps: What norms add under their root.
        ropes: For each layer how its queries and keys are rotated, None if they are not.
        windows: For each layer how many of the latest keys a query sees, None for all.
        biased: Projections that have a bias.
        tied: Whether the embedding is the head too.
        activation: A name of :data:`maxtool.parity.decoder.mlp.ACTIVATIONS`.
        norm: Root mean square or layer norm; a layer norm has a bias.
        norm_offset: Added to the stored weight of each norm.
        block: Where the norms are: before attention and MLP, after them, both; or attention and
            MLP beside each other, with a norm each or one for both.
        qk_norm: Norms of queries and keys: of each head, or of all heads together.
        gated: Whether the MLP multiplies two projections.
        experts: The choice of experts, if there is one.
        positions: Rows of the learned embedding of positions, 0 without one.
        pairs: Whether a head's neighbours rotate together rather than its halves.
        scale: Scores are multiplied by it; None for the root of the head's size, inverted.
        attention_cap: Scores are bent to stay below it.
        logits_cap: Logits are bent to stay below it.
        embed_scale: Embeddings are multiplied by it.
        residual_scale: What each attention and MLP adds is multiplied by it.
        logits_scale: Logits are multiplied by it.
    """

    names: Names
    sizes: Sizes
    eps: float
    ropes: tuple[Rope | None, ...]
    windows: tuple[int | None, ...]
    biased: frozenset[str]
    tied: bool
    activation: str = "silu"
    norm: Literal["rms", "layer"] = "rms"
    norm_offset: float = 0.0
    block: Block = "pre"
    qk_norm: Literal["none", "head", "full"] = "none"
    gated: bool = True
    experts: Experts | None = None
    positions: int = 0
    pairs: bool = False
    scale: float | None = None
    attention_cap: float | None = None
    logits_cap: float | None = None
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0

    @property
    def attention_scale(self) -> float:
        """What scores are multiplied by."""
        return self.sizes.head_dim**-0.5 if self.scale is None else self.scale

    def has_experts(self, layer: int) -> bool:
        """Whether the MLP of a layer is a choice of experts."""
        return self.experts is not None and self.experts.layers[layer]

    @cached_property
    def depends_on_length(self) -> bool:
        """Whether a token's rotation depends on how long the sequence is by then."""
        return bool(self._scaling_turns)

    @property
    def turns(self) -> tuple[int, ...]:
        """Lengths, ascending, beyond which sequences are computed otherwise than up to them."""
        windows = {window for window in self.windows if window is not None}
        return tuple(sorted(windows | self._scaling_turns))

    @property
    def _scaling_turns(self) -> set[int]:
        turns = {rope.scaling.turn for rope in self.ropes if rope is not None}
        return {turn for turn in turns if turn is not None}


def check(settings: Settings, problems: list[str], checkpoint: Checkpoint) -> Settings:
    """The settings, if nothing was wrong with what they were read from.

    Raises:
        ConfigurationError: Listing what was found while reading, or else what does not fit.
    """
    problems = list(dict.fromkeys(problems)) or _problems(settings, len(checkpoint.tensors))
    if problems:
        raise ConfigurationError(
            "the configuration cannot be used for a reference",
            file=checkpoint.config_file or checkpoint.path,
            problems=problems,
        )
    return settings


def layer_count(found: int, checkpoint: Checkpoint, problems: list[str]) -> int:
    """The number of layers; 1 stands in for one that is reported as more than there can be."""
    if found <= len(checkpoint.tensors):
        return found
    problems.append(f"{found} layers are more than {len(checkpoint.tensors)} tensors can make")
    return 1


def _problems(settings: Settings, tensors: int) -> list[str]:
    sizes, experts = settings.sizes, settings.experts
    widest = max((rope.width for rope in settings.ropes if rope), default=0)
    found = (
        (
            sizes.heads % sizes.kv_heads,
            f"{sizes.heads} query heads do not share {sizes.kv_heads} key heads evenly",
        ),
        (
            widest > sizes.head_dim,
            f"a head of {sizes.head_dim} cannot be rotated in {widest // 2} planes",
        ),
        (
            experts is not None and experts.used > experts.count,
            f"more experts are used than there are: {experts}",
        ),
        (
            experts is not None and settings.names.expert_by_expert and experts.count > tensors,
            f"{tensors} tensors cannot make so many experts: {experts}",
        ),
    )
    return [problem for wrong, problem in found if wrong]
