"""Groups of compressed-tensors: which layers each is for, and whether its weights have zeros.

A group's ``targets`` are names of modules, ``re:`` with a regular expression that must match from
the beginning of a name, or classes of modules, which a checkpoint does not tell. The most specific
one counts (``compressed_tensors.utils.match``). Expressions of a file are not given to ``re``,
which may take forever: those of texts and ``.*`` are matched here, of others nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxtool.weights.schemes.scheme import Unsupported

EXPRESSION = "re:"
ANY = r".*"
# Texts, in which a dot may be escaped, with .* between them; other characters mean something else.
READABLE = re.compile(r"\^?(?:[\w\-/]|\\\.|\.\*?)*\$?")


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Modules whose weights are stored in one way.

    Attributes:
        bits: The width of their numbers.
        has_zeros: Whether they are asymmetric.
        targets: What says which modules these are.
    """

    bits: int
    has_zeros: bool
    targets: tuple[str, ...]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> WeightGroup:
        """Read a group of ``config_groups`` whose keys were checked.

        Raises:
            Unsupported: If its targets are no texts.
        """
        weights, targets = said["weights"], said.get("targets")
        listed = [targets] if isinstance(targets, str) else targets or []
        if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
            raise Unsupported(f"config_groups.targets = {targets!r:.80} is not a list of texts")
        return cls(int(weights["num_bits"]), weights.get("symmetric") is False, tuple(listed))

    def answers(self, module: str) -> set[bool | None]:
        """Return what its expressions say of a module's name: no, yes, or None for unknown."""
        return {_matches(target, module) for target in self.targets if _is_expression(target)}


def need_zeros(groups: Sequence[WeightGroup], module: str) -> bool:
    """Tell whether weights of a module cannot be without zeros.

    Of several groups that may be meant, each must be without them.
    """
    named = [group for group in groups if module in group.targets]
    matched = [group for group in groups if group.answers(module) & {True}]
    perhaps = [group for group in groups if group.answers(module) & {None}]
    classes = [group for group in groups if not all(map(_is_expression, group.targets))]
    meant = named or (matched or classes) + perhaps or groups
    return any(group.has_zeros for group in meant)


def _is_expression(target: str) -> bool:
    return target.startswith(EXPRESSION)


def _matches(expression: str, module: str) -> bool | None:
    """Tell whether an expression matches a name; None where it is of a kind that is not read."""
    text = expression.removeprefix(EXPRESSION)
    if not READABLE.fullmatch(text):
        return None
    whole = text.endswith("$")
    pieces = text.removeprefix("^").removesuffix("$").split(ANY)
    return _in_order(pieces, module, whole=whole)


def _in_order(pieces: Sequence[str], name: str, *, whole: bool) -> bool:
    """Tell whether a name begins with the first piece and has the others behind it, in order.

    The last one ends the name if the ``whole`` of it must match. Each is looked for where the one
    before it first ended, since an earlier end leaves more to those that follow.
    """
    first, *rest = (re.compile(piece) for piece in pieces)
    if not (found := first.match(name)):
        return False
    end = found.end()
    last = rest.pop() if whole and rest else None
    for piece in rest:
        if not (found := piece.search(name, end)):
            return False
        end = found.end()
    if last is None:
        return not whole or end == len(name)
    tail = len(name) - _length(last.pattern)
    return tail >= end and last.fullmatch(name, tail) is not None


def _length(piece: str) -> int:
    """Return how many characters a piece takes: an escaped dot is one."""
    return len(piece) - piece.count("\\")
