"""Rotary settings from a config.json, as transformers 5.23 reads both spellings.

Transformers 4 wrote ``rope_theta`` and ``rope_scaling``, transformers 5 writes ``rope_parameters``,
which has both. A ``rope_scaling`` that says something is read before ``rope_parameters``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from maxtool.parity.decoder.rope import Rope
from maxtool.parity.decoder.scaling import (
    Dynamic,
    Linear,
    Llama3,
    LongRope,
    Scaling,
    Unscaled,
    Yarn,
    longrope_attention,
    yarn_attention,
)
from maxtool.parity.raw_config import Reader


@dataclass(frozen=True, slots=True)
class RopeKeys:
    """Where a family keeps its rotary settings.

    Attributes:
        theta: Key of the base, outside of ``rope_scaling``.
        default_theta: The base where no key says it.
        partial: Key of the share of a head that rotates; None if heads rotate as a whole.
        default_partial: That share where no key says it.
        original: The original context where no key says it, None for the whole context.
        renamed: Scalings that the family calls by other names.
    """

    theta: str = "rope_theta"
    default_theta: float = 10000.0
    partial: str | None = None
    default_partial: float = 1.0
    original: int | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Section:
    """What a scaling is read from: its table, and what stands outside of it."""

    read: Reader
    context: int
    original: int
    planes: int


def read_rope(
    read: Reader, keys: RopeKeys, *, head_dim: int, context: int, section: str | None = None
) -> Rope:
    """The rotary settings of a configuration.

    Args:
        read: The configuration.
        keys: Where the family keeps them.
        head_dim: Features of a head.
        context: The longest sequence that the configuration states.
        section: The table inside ``rope_parameters`` that holds them, if there are several.
    """
    table = _table(read, section)
    inside = Reader(table, read.problems)
    theta = inside.number("rope_theta", read.number(keys.theta, keys.default_theta))
    dim = int(head_dim * _share(read, inside, keys))
    stated = table.get("rope_type", table.get("type")) or "default"
    kind = keys.renamed.get(str(stated), str(stated))
    if kind not in SCALINGS or dim < 1:
        read.problems.append(
            f"rope_type is {stated!r}, for {dim} features; only {', '.join(SCALINGS)} are supported"
        )
        return Rope(head_dim, theta)
    original = _original(read, inside, keys, context) if kind in WITH_ORIGINAL else context
    found = _Section(inside, context, original, (dim + 1) // 2)
    _check_logarithms(found, kind, dim, theta)
    return Rope(dim, theta, SCALINGS[kind](found))


def _table(read: Reader, section: str | None) -> Mapping[str, object]:
    newer = read.section("rope_parameters")
    if section is not None:
        return Reader(newer, read.problems).section(section)
    return read.section("rope_scaling") or newer


def _share(read: Reader, inside: Reader, keys: RopeKeys) -> float:
    """The share of a head that rotates."""
    if keys.partial is None:
        inside.only("partial_rotary_factor", 1.0)
        read.only("partial_rotary_factor", 1.0)
        return 1.0
    share = inside.number("partial_rotary_factor", read.number(keys.partial, keys.default_partial))
    if share > 1:
        read.problems.append(f"{share} of a head cannot rotate")
    return min(share, 1.0)


def _original(read: Reader, inside: Reader, keys: RopeKeys, context: int) -> int:
    """The context before it was stretched; a key outside of the table goes before one in it."""
    outside, key = read.get("original_max_position_embeddings"), "original_max_position_embeddings"
    if outside is not None or keys.original is not None:
        return read.integer(key, keys.original)
    return inside.integer(key, context)


def _check_logarithms(found: _Section, kind: str, dim: int, theta: float) -> None:
    """Report what a scaling would divide by zero for."""
    bad = (
        (kind == "dynamic" and dim <= 2, "dynamic scaling needs more than one plane"),
        (kind == "yarn" and theta == 1, "yarn scaling needs a base other than 1"),
        (kind == "longrope" and found.original == 1, "longrope needs a longer original context"),
    )
    found.read.problems.extend(problem for wrong, problem in bad if wrong)


def _unscaled(found: _Section) -> Scaling:  # noqa: ARG001 - called as the others are
    return Unscaled()


def _linear(found: _Section) -> Scaling:
    return Linear(found.read.number("factor"))


def _dynamic(found: _Section) -> Scaling:
    return Dynamic(found.read.number("factor"), found.context)


def _llama3(found: _Section) -> Scaling:
    low, high = found.read.number("low_freq_factor"), found.read.number("high_freq_factor")
    if low == high and not found.read.problems:
        found.read.problems.append(f"low_freq_factor and high_freq_factor are both {low}")
    return Llama3(found.read.number("factor"), low, high, found.original)


def _yarn(found: _Section) -> Scaling:
    read, factor = found.read, found.read.number("factor")
    return Yarn(
        factor,
        found.original,
        read.optional_number("attention_factor") or _yarn_attention(read, factor),
        read.number("beta_fast", 32.0),
        read.number("beta_slow", 1.0),
        read.flag("truncate", default=True),
    )


def _yarn_attention(read: Reader, factor: float) -> float:
    """What the paper suggests, or the quotient that DeepSeek's configurations ask for."""
    over, under = read.optional_number("mscale"), read.optional_number("mscale_all_dim")
    if over and under:
        return yarn_attention(factor, over) / yarn_attention(factor, under)
    return yarn_attention(factor)


def _longrope(found: _Section) -> Scaling:
    read = found.read
    factor = read.optional_number("factor") or found.context / found.original
    return LongRope(
        read.numbers("short_factor", found.planes),
        read.numbers("long_factor", found.planes),
        found.original,
        read.optional_number("attention_factor") or longrope_attention(factor, found.original),
    )


SCALINGS: Mapping[str, Callable[[_Section], Scaling]] = {
    "default": _unscaled,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
WITH_ORIGINAL = ("llama3", "yarn", "longrope")
