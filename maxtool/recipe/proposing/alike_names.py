"""Names of tensors that a recipe does not know, and what it calls the tensors that they may be.

A guess is made only where nothing comes as near: names that are as like to two tensors are left.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat

from maxtool.recipe.name_patterns import INDEX, NUMBER
from maxtool.recipe.rule import Rule
from maxtool.recipe.schema import Dialect, Recipe

_NUMBER = re.compile(NUMBER)
_WORD = re.compile(r"[a-z]+|[0-9]+")
HOLE = "{}"
# Of what the words of two names say, the share that has to be the same.
LEAST = 0.5
# By how much the best has to be better than the next.
LEAD = 0.05
# What words of the last parts count, beside those of all before: the prefix says least.
WEIGHTS = (8, 4)

# Last parts that most tensors have.
SAYS_LITTLE = ("weight", "bias")

# Words that are short for others.
SHORT = {"q": "query", "k": "key", "v": "value", "attn": "attention", "ffn": "mlp"}


@dataclass(frozen=True)
class Guess:
    """A tensor's name in a checkpoint for one of a recipe, both as patterns.

    Attributes:
        found: The name in the checkpoint, with the indices of ``known``.
        known: The name that the recipe has.
        likeness: How alike they are, from 0 to 1.
    """

    found: str
    known: str
    likeness: float


def folded(name: str) -> str:
    """A name, or a pattern, with a hole for each number or index."""
    return ".".join(
        HOLE if _NUMBER.fullmatch(part) or INDEX.fullmatch(part) else part
        for part in name.split(".")
    )


def aliases(recipes: Iterable[Recipe], dialect: Dialect) -> Mapping[str, frozenset[str]]:
    """Names that parameters have in any recipe, where a tensor is one, by the parameter."""
    found: dict[str, set[str]] = defaultdict(set)
    for recipe in recipes:
        for rule in recipe.rules[dialect].rules:
            if _is_one(rule):
                found[folded(rule.target.text)].add(folded(rule.sources[0].text))
    return {target: frozenset(names) for target, names in found.items()}


def guesses(
    recipe: Recipe,
    dialect: Dialect,
    names: Sequence[str],
    other: Mapping[str, frozenset[str]],
) -> list[Guess]:
    """Guess what a recipe's tensors are called in a checkpoint, where it is something else.

    Args:
        recipe: The recipe.
        dialect: The dialect of the checkpoint.
        names: The names in the checkpoint, folded, each once.
        other: What parameters are called in other recipes, see :func:`aliases`.
    """
    patterns: dict[str, str] = {}
    targets: dict[str, set[str]] = defaultdict(set)
    for rule in recipe.rules[dialect].rules:
        for source in rule.sources:
            patterns.setdefault(folded(source.text), source.text)
            if _is_one(rule):
                targets[folded(source.text)].add(folded(rule.target.text))
    there = set(names)
    free = [name for name in names if name not in patterns]
    wanted = [name for name in patterns if name not in there]
    spelled = {
        name: {name, *(alias for target in targets[name] for alias in other.get(target, ()))}
        for name in wanted
    }
    scores = {
        (name, known): max(_likeness(name, one) for one in spelled[known])
        for name in free
        for known in wanted
    }
    return [
        Guess(_with_indices(name, patterns[known]), patterns[known], _likeness(name, known))
        for name, known in _clear(scores, free, wanted)
    ]


def _is_one(rule: Rule) -> bool:
    """Return whether a parameter is one tensor, and all of it."""
    return len(rule.sources) == 1 and rule.part is None and rule.over is None


def _clear(
    scores: Mapping[tuple[str, str], float], free: Sequence[str], wanted: Sequence[str]
) -> list[tuple[str, str]]:
    """The pairs of which neither side has another that is about as good; the best ones first.

    What has been paired is nobody's rival any more.
    """
    left, right = set(free), set(wanted)
    likely = sorted(
        (pair for pair, score in scores.items() if score >= LEAST),
        key=lambda pair: (-scores[pair], pair),
    )
    found: list[tuple[str, str]] = []
    more = True
    while more:
        more = False
        for name, known in likely:
            if name in left and known in right:
                rivals = [scores[name, one] for one in right - {known}]
                rivals += [scores[one, known] for one in left - {name}]
                if max(rivals, default=0.0) + LEAD <= scores[name, known]:
                    left.discard(name)
                    right.discard(known)
                    found.append((name, known))
                    more = True
    return found


@lru_cache(1 << 18)
def _likeness(first: str, second: str) -> float:
    """The share of what two names say that is the same; 0 where they cannot be one tensor."""
    ends = (first.rpartition(".")[2], second.rpartition(".")[2])
    if ends[0] != ends[1] or first.split(".").count(HOLE) != second.split(".").count(HOLE):
        return 0.0
    ours, theirs = _words(first), _words(second)
    whole = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / whole if whole else 0.0


@lru_cache(1 << 18)
def _words(name: str) -> Counter[str]:
    """The words of a name, by how much each says: the later its part stands, the more."""
    *before, last = name.lower().split(".")
    parts = [part for part in (before if last in SAYS_LITTLE else [*before, last]) if part != HOLE]
    found: Counter[str] = Counter()
    for part, weight in zip(reversed(parts), chain(WEIGHTS, repeat(1)), strict=False):
        for word in _WORD.findall(part):
            found[SHORT.get(word, word)] += weight
    return found


def _with_indices(name: str, pattern: str) -> str:
    """A folded name with the indices of a pattern, in their order."""
    indices = iter(INDEX.findall(pattern))
    return ".".join(f"{{{next(indices)}}}" if part == HOLE else part for part in name.split("."))
