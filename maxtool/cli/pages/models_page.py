"""The page of ``compare`` of compiled models: how far their predictions lie apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maxtool.cli import units
from maxtool.cli.pages.charts import Axis, Mark, scatter
from maxtool.cli.pages.markup import Markup
from maxtool.cli.pages.page import document, section, table

if TYPE_CHECKING:
    from maxtool.cli.tables import Column
    from maxtool.evaluation.model_summary import Summary


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of the comparison, the reference included."""

    name: str
    nbytes: int
    summary: Summary


def page(
    fact: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    models: Sequence[Candidate],
) -> str:
    """The page of models, the first of which is the reference; ``rows`` are the table's."""
    reference, *others = models
    sections = [section("Totals", fact, table(columns, rows)), *_pictures(others)]
    names = others[0].name if len(others) == 1 else f"{len(others)} candidates"
    return document(f"{names} beside {reference.name}", [], sections)


def _pictures(models: Sequence[Candidate]) -> Iterator[Markup]:
    """Yield pictures of those that differ from the reference by a finite divergence."""
    shown = [one for one in models if 0 < one.summary.divergence.value < math.inf]
    if not shown:
        return
    what = "The mean Kullback-Leibler divergence from the reference in nats, over the size."
    yield section("Divergence and size", what, _cost(shown))
    what = (
        "The divergence in nats that so many of the tokens stay below, and the largest of a token."
    )
    yield section("Percentiles of the divergence", what, _percentiles(shown))


def _cost(models: Sequence[Candidate]) -> Markup:
    marks = [
        Mark(one.nbytes / 2**20, value, [one.name, f"{_size(one)}, {value:.4g} nats"], one.name)
        for one in models
        for value in [one.summary.divergence.value]
    ]
    values = [mark.y for mark in marks]
    x = Axis("MiB", 0, max(mark.x for mark in marks) * 1.15)
    y = Axis("KL divergence", min(values) / 2, max(values) * 2, log=True)
    return scatter(marks, x, y, name="divergence and size")


def _size(model: Candidate) -> str:
    return units.binary_size(model.nbytes)


def _percentiles(models: Sequence[Candidate]) -> Markup:
    shares = [*models[0].summary.percentiles]
    headers = ["model", *(f"{share:g}%" for share in shares), "largest"]
    columns = [(name, "left" if name == "model" else "right") for name in headers]
    rows = [
        [one.name, *(f"{value:.6f}" for value in one.summary.percentiles.values()), largest]
        for one in models
        for largest in [f"{one.summary.largest:.4g}"]
    ]
    return table(columns, rows)
