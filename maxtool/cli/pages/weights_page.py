"""The page of ``compare`` of checkpoints: what each candidate costs, and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from maxtool.cli.pages.charts import Axis, Mark, scatter
from maxtool.cli.pages.differences import error_map, error_tiles
from maxtool.cli.pages.markup import Markup, element
from maxtool.cli.pages.page import document, section, table

if TYPE_CHECKING:
    from maxtool.cli.tables import Column
    from maxtool.weights.pairing import Difference

# A candidate: its name, its bits per weight, its relative error, and its tensors.
Candidate = tuple[str, float, float, Sequence["Difference"]]


def page(
    reference: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    candidates: Sequence[Candidate],
) -> str:
    """The page of checkpoints beside a reference; ``rows`` are the totals."""
    sections = [section("Totals", f"Of all tensors, beside {reference}.", table(columns, rows))]
    if len(candidates) > 1:
        sections.append(_cost(candidates))
    for name, _, _, differences in candidates:
        if len(candidates) > 1:
            sections.append(element("h1", name, class_="part"))
        sections += [error_map(differences), error_tiles(differences)]
    count = len(candidates)
    names = candidates[0][0] if count == 1 else f"{count} candidates"
    return document(f"{names} beside {reference}", [], sections)


def _cost(candidates: Sequence[Candidate]) -> Markup:
    """Relative errors of candidates over their bits per weight."""
    marks = [
        Mark(bits, error, [name, f"{bits:.2f} bits per weight, {100 * error:.3g}%"], name)
        for name, bits, error, _ in candidates
        if error and math.isfinite(error)
    ]
    what = "The relative error of all tensors together, over the bits that a weight takes."
    if not marks:
        return section("Error and size", f"{what} No candidate differs by a finite error.")
    most = max(mark.x for mark in marks)
    errors = [mark.y for mark in marks]
    x = Axis("bits per weight", 0, most * 1.15)
    y = Axis("relative error", min(errors) / 2, max(errors) * 2, log=True)
    return section("Error and size", what, scatter(marks, x, y, name="error and size"))
