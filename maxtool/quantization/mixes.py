"""The table of mixes: which matrices of a model get other types than most of them.

Names, numbers and choices are those of llama.cpp's llama-quantize (``src/llama-quant.cpp``), so
that files of a name are the same there and here. The conditions read the layer of a tensor among
those of its role, and a few facts of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from maxtool.quantization.encoding import QuantizationEncoding as E


class Role(Enum):
    """Role of a matrix, as far as mixes tell them apart."""

    EMBEDDING = "the vectors of tokens"
    HEAD = "logits"
    VALUES = "values of attention, alone or fused with queries and keys"
    KEYS = "keys of attention"
    OUT = "what follows attention"
    DOWN = "the second half of an MLP"
    OTHER = "all else"


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model on which types depend, beside names and shapes.

    Attributes:
        architecture: GGUF's name of it.
        layers: How many layers there are.
        heads: Heads of queries.
        key_heads: Heads of keys of the first layer, each shared by as many of queries; 0 if it has
            no attention.
        experts: Experts of a layer; 0 if there are none.
        has_importance: Whether columns are weighed by an importance matrix.
    """

    architecture: str
    layers: int
    heads: int = 1
    key_heads: int = 1
    experts: int = 0
    has_importance: bool = False

    @property
    def is_falcon(self) -> bool:
        """Return whether the rules for Falcon hold."""
        return self.architecture == "falcon"

    @property
    def is_large(self) -> bool:
        """Return whether it has the shape of Llama 2 70B, or of Qwen 2 72B."""
        shares = self.heads != self.key_heads and self.architecture == "llama"
        return self.layers == LARGE and (shares or self.architecture == "qwen2")


LARGE = 80  # layers


@dataclass(frozen=True, slots=True)
class Spot:
    """Position of a tensor: the number of its layer, of how many, and in which model."""

    layer: int
    layers: int
    model: ModelFacts


Condition: TypeAlias = Callable[[Spot], bool]
# Types with the conditions for them; the first that holds decides.
Rules: TypeAlias = tuple[tuple[Condition, E], ...]


def always(_: Spot) -> bool:
    """Any layer."""
    return True


def first(part: int) -> Condition:
    """A layer of the first half, eighth, ..."""
    return lambda spot: spot.layer < spot.layers // part


def below(layer: int) -> Condition:
    """A layer before that one."""
    return lambda spot: spot.layer < layer


def sensitive(spot: Spot) -> bool:
    """A layer of the first eighth or of the last, or each third one between them."""
    eighth = spot.layers // 8
    outer = spot.layer < eighth or spot.layer >= 7 * spot.layers // 8
    return outer or (spot.layer - eighth) % 3 == 2


def grouped(spot: Spot) -> bool:
    """Four heads or more share one of keys and values."""
    return spot.model.heads >= 4 * spot.model.key_heads > 0


def eight_experts(spot: Spot) -> bool:
    """A model shaped like Mixtral 8x7B."""
    return spot.model.experts == 8


def weighed(spot: Spot) -> bool:
    """An importance matrix is used."""
    return spot.model.has_importance


def both(left: Condition, right: Condition) -> Condition:
    """Two conditions hold."""
    return lambda spot: left(spot) and right(spot)


def no(condition: Condition) -> Condition:
    """A condition does not hold."""
    return lambda spot: not condition(spot)


@dataclass(frozen=True, eq=False)
class Mix:
    """A mix of types, or a single type with the exceptions that llama-quantize makes.

    Attributes:
        name: What users call it.
        number: Its number in llama.h's ``enum llama_ftype``.
        base: The type of most matrices.
        rules: Those for matrices that get other types, by role.
        falcon: Rules that replace these for Falcon.
        embedding: The type of an embedding that is not the head too.
        needs_importance: Whether its base type is too coarse without an importance matrix.
    """

    name: str
    number: int
    base: E
    rules: Mapping[Role, Rules] = field(default_factory=dict)
    falcon: Mapping[Role, Rules] = field(default_factory=dict)
    embedding: E | None = None
    needs_importance: bool = False

    def encoding(self, role: Role, spot: Spot) -> E:
        """The type of a matrix in a layer."""
        falcon = {**FALCON, **self.falcon} if spot.model.is_falcon else {}
        rules = falcon.get(role, self.rules.get(role, ()))
        chosen = next((encoding for holds, encoding in rules if holds(spot)), self.base)
        if role is Role.VALUES and spot.model.is_large and chosen in (E.Q3_K, E.Q4_K):
            chosen = E.Q5_K  # the matrix is small, being shared by eight heads
        return E.Q8_0 if role in SMALL and eight_experts(spot) else chosen

    def head(self, row: int, model: ModelFacts) -> E:
        """The type of the head, or of an embedding that is the head too; by its rows' elements."""
        if model.is_falcon or row % self.base.elements_per_block or self.base is E.MXFP4:
            return E.Q8_0
        return self.base if self.base is E.Q8_0 else E.Q6_K


SMALL = (Role.VALUES, Role.KEYS)  # beside eight experts
FALCON: Mapping[Role, Rules] = {Role.OUT: ()}

EXPERTS_Q5 = (eight_experts, E.Q5_K)
UNEVEN = {
    Role.VALUES: ((grouped, E.Q5_K),),
    Role.DOWN: ((both(first(8), no(weighed)), E.Q5_K),),
    Role.OUT: (EXPERTS_Q5,),
}


def _guarded(finer: E) -> dict[Role, Rules]:
    """Rules by which the first layers are guarded against what importance does to them."""
    return {Role.DOWN: ((both(first(8), weighed), finer),)}


_ALL = (
    Mix("Q4_0", 2, E.Q4_0, _guarded(E.Q4_1)),
    Mix("Q4_1", 3, E.Q4_1),
    Mix("Q5_0", 8, E.Q5_0, _guarded(E.Q5_1)),
    Mix("Q5_1", 9, E.Q5_1),
    Mix("Q8_0", 7, E.Q8_0),
    Mix(
        "Q2_K",
        10,
        E.Q2_K,
        {
            Role.VALUES: ((grouped, E.Q4_K), (always, E.Q3_K)),
            Role.DOWN: ((always, E.Q3_K),),
            Role.OUT: (EXPERTS_Q5, (always, E.Q3_K)),
        },
    ),
    Mix(
        "Q2_K_S",
        21,
        E.Q2_K,
        {Role.VALUES: ((grouped, E.Q4_K),), Role.DOWN: ((first(8), E.Q4_K),)},
        needs_importance=True,
    ),
    Mix("Q3_K_S", 11, E.Q3_K, {Role.OUT: (EXPERTS_Q5,)}),
    Mix(
        "Q3_K_M",
        12,
        E.Q3_K,
        {
            Role.VALUES: ((below(2), E.Q5_K), (always, E.Q4_K)),
            Role.DOWN: ((first(16), E.Q5_K), (always, E.Q4_K)),
            Role.OUT: (EXPERTS_Q5, (always, E.Q4_K)),
        },
        falcon={Role.DOWN: ((first(16), E.Q5_K), (sensitive, E.Q4_K))},
    ),
    Mix(
        "Q3_K_L",
        13,
        E.Q3_K,
        {
            Role.VALUES: ((always, E.Q5_K),),
            Role.DOWN: ((always, E.Q5_K),),
            Role.OUT: ((no(eight_experts), E.Q5_K),),
        },
        falcon={Role.DOWN: ((always, E.Q4_K),), Role.OUT: ((always, E.Q4_K),)},
    ),
    Mix(
        "Q4_K_S",
        14,
        E.Q4_K,
        {
            Role.VALUES: ((below(4), E.Q5_K),),
            Role.DOWN: ((first(8), E.Q5_K),),
            Role.OUT: (EXPERTS_Q5,),
        },
        falcon={Role.DOWN: ()},
    ),
    Mix(
        "Q4_K_M",
        15,
        E.Q4_K,
        {
            Role.VALUES: ((sensitive, E.Q6_K),),
            Role.DOWN: ((sensitive, E.Q6_K),),
            Role.OUT: (EXPERTS_Q5,),
        },
        falcon={Role.DOWN: ((first(16), E.Q6_K), (sensitive, E.Q5_K))},
    ),
    Mix("Q5_K_S", 16, E.Q5_K),
    Mix(
        "Q5_K_M",
        17,
        E.Q5_K,
        {Role.VALUES: ((sensitive, E.Q6_K),), Role.DOWN: ((sensitive, E.Q6_K),)},
    ),
    Mix("Q6_K", 18, E.Q6_K),
    Mix("IQ4_NL", 25, E.IQ4_NL, UNEVEN),
    Mix("IQ4_XS", 30, E.IQ4_XS, UNEVEN),
    Mix("TQ1_0", 36, E.TQ1_0, embedding=E.Q4_K),
    Mix("TQ2_0", 37, E.TQ2_0, embedding=E.Q4_K),
    Mix("MXFP4_MOE", 38, E.MXFP4),
)
MIXES: Mapping[str, Mix] = {mix.name: mix for mix in _ALL}
# Names for the mix that is meant where only a type is said.
ALIASES: Mapping[str, str] = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
