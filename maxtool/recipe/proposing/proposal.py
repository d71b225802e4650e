"""A proposed recipe, and what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from maxtool.recipe.keys import short
from maxtool.recipe.problems import Table
from maxtool.recipe.proposing.alike_names import Guess
from maxtool.recipe.proposing.toml_text import section
from maxtool.recipe.schema import DIALECTS
from maxtool.runtime.loader.terminal import printable

# Lines that stand for those on tensors, where the configuration is too far off to look at them.
NOT_LOOKED_AT = 8


@dataclass(frozen=True)
class Proposal:
    """A recipe for a checkpoint, and what it leaves open.

    Attributes:
        base: The recipe that is nearest.
        kind: What the checkpoint calls its architecture.
        tables: The tables of the proposed recipe.
        names: Tensors that are called otherwise, which was guessed.
        keys: Fields that are kept under other keys, with these.
        open: What the recipe does not explain, a line each.
        parameters: How many parameters the tensors make.
        values: The configuration as it is read; empty where the tensors could not be looked at.
        alike: Other recipes that would leave as little open, with what they read otherwise.
    """

    base: str
    kind: str
    tables: Table
    names: Sequence[Guess]
    keys: Mapping[str, str]
    open: Sequence[str] = ()
    parameters: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)
    alike: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The recipe's name."""
        return str(self.tables["name"])

    @property
    def rank(self) -> tuple[int, int, float]:
        """Order of proposals: the lowest is the best.

        Of two that explain everything, one may leave out tensors, as a model without a head does.
        """
        return self.distance, -self.parameters, self.strangeness

    @property
    def distance(self) -> int:
        """Distance from explaining everything, in lines; some for what was not looked at."""
        return len(self.open) + (0 if self.values else NOT_LOOKED_AT)

    @property
    def idle(self) -> set[str]:
        """The lines on tensors that are not used."""
        return {line for line in self.open if line.startswith("not used")}

    @property
    def strangeness(self) -> float:
        """Distance of the names that were guessed from those of this recipe, in all."""
        return sum(1 - one.likeness for one in self.names)

    def text(self, source: str) -> str:
        """The recipe as TOML; ``source`` is what the checkpoint is called in a comment."""
        # Names in a file hold whatever its author put there, lines of TOML too.
        comments = (f"# {printable(line)}" for line in self._comments(source))
        return "\n".join([*comments, *self._sections()]) + "\n"

    def _comments(self, source: str) -> Iterator[str]:
        yield f"Proposed for {source!r:.200} by its names and shapes: {self.base}, but for this."
        if self.names or self.keys:
            yield "Look at each name and key below: that it means the same was guessed."
        for name, values in self.alike.items():
            told = ", ".join(f"{option} = {short(value)}" for option, value in values.items())
            yield f"As near: {name}{f', with {told}' if told else ''}"
        yield from (f"OPEN: {line}" for line in self.open)

    def _sections(self) -> Iterator[str]:
        yield from section("", {key: self.tables[key] for key in ("schema", "name", "extends")})
        for name in ("match", "config", "constants", "weights"):
            table = self.tables[name]
            if table:
                below = {k: v for k, v in table.items() if k in DIALECTS and isinstance(v, dict)}
                beside = {k: v for k, v in table.items() if k not in below}
                if beside:
                    yield ""
                    yield from section(name, beside)
                for own, lines in ((own, lines) for own, lines in below.items() if lines):
                    yield ""
                    yield from section(f"{name}.{own}", lines)
