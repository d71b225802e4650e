"""Schemes: a mix, what a user wants otherwise, and the type that each tensor gets by both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from maxtool.dtype import DType
from maxtool.quantization.block import Float32
from maxtool.quantization.encoding import QuantizationEncoding as E
from maxtool.quantization.mixes import ALIASES, MIXES, Mix, ModelFacts, Role, Spot

StoredType: TypeAlias = DType | E
Shape: TypeAlias = tuple[int, ...]

# Tensors that llama.cpp only takes as float32: norms, biases, routers of experts, convolutions over
# time, embeddings of positions and token types.
ALWAYS_FLOAT32 = re.compile(
    r"_norm\.weight$|(?<!\.weight)$|\.ffn_gate_inp(_shexp)?\.weight$"
    r"|\.(shortconv\.conv|ssm_conv1d)\.weight$"
    r"|^(position_embd|token_types)\.weight$"
)
# Small matrices that llama-quantize leaves as they are: Gemma 3n's of streams and of learned
# residuals, and that by which embeddings have a share in vectors for each layer.
LEFT = re.compile(r"altup|laurel|per_layer_model_proj")
ROLES: Mapping[Role, re.Pattern[str]] = {
    Role.HEAD: re.compile(r"^output\.weight$"),
    Role.EMBEDDING: re.compile(r"^(per_layer_)?token_embd\.weight$"),
    Role.VALUES: re.compile(r"attn_(v|qkv|kv_b)\.weight"),
    Role.KEYS: re.compile(r"attn_k\.weight"),
    Role.OUT: re.compile(r"attn_output\.weight"),
    Role.DOWN: re.compile("ffn_down"),
}
LAYER = re.compile(r"blk\.(\d+)")

# What comes nearest where rows are not of whole blocks; float16 where they are not of these either.
FALLBACKS: Mapping[E, E] = {
    **dict.fromkeys((E.Q2_K, E.Q3_K, E.TQ1_0, E.TQ2_0), E.Q4_0),
    E.Q4_K: E.Q5_0,
    E.Q5_K: E.Q5_1,
    E.Q6_K: E.Q8_0,
    E.IQ4_XS: E.IQ4_NL,
}
LAST = DType.float16
# Three values are too few for the embedding and the head, even where all else has the one type.
TERNARY = (E.TQ1_0, E.TQ2_0)


@dataclass(frozen=True)
class Scheme:
    """A request for quantized matrices.

    Attributes:
        mix: The types of the matrices.
        pure: Whether all of them get the mix's base type.
        overrides: Shell patterns of tensors' names in GGUF, and the types of those that match; the
            last that matches counts.
        head: The type of the head.
        embedding: The type of the embedding.
        importance: llama.cpp's importance matrix, if one is used.
        strict: Whether it is an error that rows are not of whole blocks.
        requantize: Whether what is quantized already may be quantized again.
    """

    mix: Mix
    pure: bool = False
    overrides: tuple[tuple[str, StoredType], ...] = ()
    head: StoredType | None = None
    embedding: StoredType | None = None
    importance: Path | None = None
    strict: bool = False
    requantize: bool = False

    @classmethod
    def named(cls, name: str) -> Scheme:
        """The scheme that a name stands for; KeyError if there is none.

        A type stands for the mix of which it is most, but for MXFP4, which means that type alone.
        """
        pure = name == E.MXFP4.name
        return cls(MIXES["MXFP4_MOE" if pure else ALIASES.get(name, name)], pure)

    def override(self, name: str) -> StoredType | None:
        """The type that the last pattern that matches a name asks for."""
        matching = (type_ for glob, type_ in self.overrides if fnmatchcase(name, glob))
        return next(iter([*matching][::-1]), None)


@dataclass(frozen=True, slots=True)
class ChosenType:
    """The type of a tensor.

    Attributes:
        type: How it is stored.
        missed: What its rows kept it from having, if they did.
        importance: That of its columns, ``[matrices, row]``, if it is known.
    """

    type: StoredType
    missed: E | None = None
    importance: Float32 | None = field(default=None, compare=False, repr=False)


def files_read(scheme: Scheme | None) -> tuple[Path, ...]:
    """The files that are read beside a source to quantize it."""
    asked = None if scheme is None else scheme.importance
    return () if asked is None else (asked,)


def is_quantizable(name: str, shape: Shape) -> bool:
    """Return whether llama-quantize would quantize a GGUF tensor: a matrix of several rows."""
    several = any(size > 1 for size in shape[:-1]) and 0 not in shape
    return several and not any(kept.search(name) for kept in (ALWAYS_FLOAT32, LEFT))


def choose_types(
    tensors: Mapping[str, Shape], scheme: Scheme, model: ModelFacts
) -> dict[str, ChosenType]:
    """The types of those of a model's GGUF tensors that can be quantized, by name."""
    choice = _Choice(scheme, model, tensors)
    wanted = ((name, choice.wanted(name)) for name in sorted(tensors, key=_order))
    return {name: _fitting(type_, tensors[name][-1]) for name, type_ in wanted if type_ is not None}


def needing_importance(types: Mapping[str, ChosenType], scheme: Scheme) -> list[str]:
    """The tensors that must not be quantized as chosen without importance."""
    return [
        name
        for name, chosen in types.items()
        if scheme.mix.needs_importance
        and chosen.type is scheme.mix.base
        and role_of(name) not in (Role.HEAD, Role.EMBEDDING)
    ]


class _Choice:
    """A walk over the tensors of a model, layer by layer, that counts those of each role.

    Tensors that the user chose a type for are not counted, as llama-quantize has it.
    """

    def __init__(self, scheme: Scheme, model: ModelFacts, tensors: Mapping[str, Shape]) -> None:
        self.scheme, self.model, self.tensors = scheme, model, tensors
        roles = [role_of(name) for name in tensors]
        self.tied = Role.HEAD not in roles
        self.counts = {Role.VALUES: roles.count(Role.VALUES), Role.DOWN: model.layers}
        self.seen = dict.fromkeys(Role, 0)

    def wanted(self, name: str) -> StoredType | None:
        """The type to give the next tensor, whatever its rows; None if it is not quantized."""
        if not is_quantizable(name, self.tensors[name]):
            return None
        role, scheme = role_of(name), self.scheme
        asked = {Role.HEAD: scheme.head, Role.EMBEDDING: scheme.embedding}.get(role)
        chosen = asked or scheme.override(name)
        if chosen is not None:
            return chosen
        return self._pure(role) if scheme.pure else self._mixed(name, role)

    def _pure(self, role: Role) -> StoredType:
        base = self.scheme.mix.base
        return LAST if base in TERNARY and role in (Role.HEAD, Role.EMBEDDING) else base

    def _mixed(self, name: str, role: Role) -> StoredType:
        mix, shape = self.scheme.mix, self.tensors[name]
        if role is Role.HEAD or (role is Role.EMBEDDING and self.tied):
            return self.scheme.head or mix.head(shape[-1], self.model)
        if mix.base is E.MXFP4:
            return E.MXFP4 if len(shape) > 2 and shape[-3] > 1 else E.Q8_0
        if role is Role.EMBEDDING:
            return mix.embedding or mix.base
        return mix.encoding(role, self._spot(name, role))

    def _spot(self, name: str, role: Role) -> Spot:
        """The layer of a tensor: as counted, or what its name says in an MLP with experts."""
        layer = self.seen[role]
        self.seen[role] += 1
        if role is Role.DOWN and self.model.experts > 1:
            layer = _layer(name)
        return Spot(layer, self.counts.get(role, self.model.layers), self.model)


def role_of(name: str) -> Role:
    """The role of a tensor, by its name in GGUF."""
    return next((role for role, names in ROLES.items() if names.search(name)), Role.OTHER)


def _layer(name: str) -> int:
    match = LAYER.match(name)
    return int(match[1]) if match else -1


def _order(name: str) -> tuple[int, str]:
    return _layer(name), name


def _fitting(wanted: StoredType, row: int) -> ChosenType:
    """The type, or what comes nearest of which rows have whole blocks."""
    if isinstance(wanted, DType) or row % wanted.elements_per_block == 0:
        return ChosenType(wanted)
    nearest = FALLBACKS.get(wanted)
    fits = nearest is not None and row % nearest.elements_per_block == 0
    return ChosenType(nearest if nearest and fits else LAST, wanted)
