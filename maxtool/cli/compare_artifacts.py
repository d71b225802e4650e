"""``maxtool compare`` of compiled models: their perplexity and divergence on a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxtool.cli import units
from maxtool.cli.output import Output
from maxtool.cli.pages.page_file import Page
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from maxtool.cli.progress import Meter
    from maxtool.cli.tables import Column
    from maxtool.evaluation.comparing import Progress
    from maxtool.evaluation.language_model import LanguageModel
    from maxtool.evaluation.model_summary import Estimate, Summary
    from maxtool.evaluation.windows import Windows

SCHEMA = "maxtool.compare/1"
COLUMNS: tuple[Column, ...] = (
    ("artifact", "left"),
    ("size", "right"),
    ("perplexity", "right"),
    ("change", "right"),
    ("KL mean", "right"),
    ("KL 99%", "right"),
    ("same top", "right"),
)


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Text to be read, and how: what the options of the command say."""

    text: Path | None = None
    tokens: Path | None = None
    context: int | None = None
    windows: int | None = None
    device: str | None = None
    no_verify: bool = False


def compare_artifacts(out: Output, folders: Sequence[Path], asked: TextOptions, page: Page) -> None:
    """Compare compiled models, the first of which is the reference, by how they read a text."""
    from maxtool.evaluation.comparing import compare as summarized
    from maxtool.evaluation.language_model import LanguageModel
    from maxtool.evaluation.same_tokens import check_vocabulary

    if (asked.text is None) == (asked.tokens is None):
        what = "compiled models are compared by how they predict a text"
        raise UsageError(f"{what}: give a text with --text, or token ids with --tokens")
    with out.progress("opening") as meter:
        models = [
            LanguageModel(folder, check=not asked.no_verify, device=asked.device)
            for folder in folders
        ]
        check_vocabulary(models)
        measured = _windows(models, asked)
        summaries = summarized(models, measured, _shown(meter))
    if page.wanted:
        _picture(page, models, summaries, measured)
    if out.json_mode:
        facts = {"text": _path(asked.text), "tokens": _path(asked.tokens)}
        out.data(SCHEMA, {**facts, **_counts(measured), "artifacts": _as_json(models, summaries)})
    else:
        _draw(out, models, summaries)
        _note(out, measured)


def _windows(models: Sequence[LanguageModel], asked: TextOptions) -> Windows:
    """The windows of the text that is asked for."""
    from maxtool.evaluation.comparing import window_length
    from maxtool.evaluation.windows import cut

    length = window_length(models, asked.context)
    return cut(_ids(models, asked), length, models[0].bos, asked.windows)


def _ids(models: Sequence[LanguageModel], asked: TextOptions) -> NDArray[np.int64]:
    """The tokens of the text, or those in the file."""
    from maxtool.evaluation.corpus import read_ids, read_text
    from maxtool.evaluation.same_tokens import encode

    if asked.text is not None:
        return encode(models, read_text(asked.text))
    return read_ids(asked.tokens or Path())


def _shown(meter: Meter) -> Progress:
    """Show the number of the window that is being read."""

    def show(number: int, count: int) -> None:
        if number == 1:
            meter.steps(count)
        meter.stage("comparing")

    return show


def _draw(out: Output, models: Sequence[LanguageModel], summaries: Sequence[Summary]) -> None:
    """Draw the table: the reference has no distance from itself."""
    from maxtool.cli.tables import draw_names

    draw_names(out, COLUMNS, _rows(models, summaries, [str(one.folder) for one in models]))


def _rows(
    models: Sequence[LanguageModel], summaries: Sequence[Summary], names: Sequence[str]
) -> list[tuple[str, ...]]:
    """The rows of the table."""
    blank = ("",) * 4
    return [
        (
            name,
            units.binary_size(model.nbytes),
            _with_error(summary.perplexity),
            *(_distance(summary) if index else blank),
        )
        for index, (name, model, summary) in enumerate(zip(names, models, summaries, strict=True))
    ]


def _distance(summary: Summary) -> tuple[str, str, str, str]:
    """The cells of a candidate on its distance from the reference."""
    return (
        f"{100 * (summary.ratio.value - 1):+z.2f}%",
        f"{summary.divergence.value:.6f}",
        f"{summary.percentiles[99.0]:.6f}",
        f"{100 * summary.same_top.value:.2f}%",
    )


def _with_error(estimate: Estimate) -> str:
    return f"{estimate.value:.4f} \N{PLUS-MINUS SIGN} {estimate.error:.4f}"


def _picture(
    page: Page, models: Sequence[LanguageModel], summaries: Sequence[Summary], windows: Windows
) -> None:
    """Draw the page, on which models are called by the last part of their paths."""
    from maxtool.cli.pages import models_page

    names = [model.folder.resolve().name for model in models]
    scored = units.plural(windows.tokens.size, "token")
    fact = f"{scored} scored, in {units.plural(windows.count, 'window')} of {windows.length}"
    candidates = [
        models_page.Candidate(name, model.nbytes, summary)
        for name, model, summary in zip(names, models, summaries, strict=True)
    ]
    page.write(models_page.page(fact, COLUMNS, _rows(models, summaries, names), candidates))


def _note(out: Output, windows: Windows) -> None:
    """Say on stderr how much was scored."""
    tokens = units.plural(windows.tokens.size, "token")
    out.note(f"{tokens} scored, in {units.plural(windows.count, 'window')} of {windows.length}")


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _counts(windows: Windows) -> dict[str, int]:
    counts = {"context": windows.length, "windows": windows.count}
    return {**counts, "scored_tokens": windows.tokens.size}


def _as_json(
    models: Sequence[LanguageModel], summaries: Sequence[Summary]
) -> list[dict[str, object]]:
    """The artifacts, in their order; numbers beyond all measure are null."""
    return [
        {
            "folder": str(model.folder),
            "bytes": model.nbytes,
            "weight_bytes": model.weight_bytes,
            "perplexity": _estimate(summary.perplexity),
            "perplexity_ratio": _estimate(summary.ratio),
            "kl_divergence": {
                **_estimate(summary.divergence),
                "percentiles": {f"{p:g}": _number(x) for p, x in summary.percentiles.items()},
                "largest": _number(summary.largest),
            },
            "same_top": _estimate(summary.same_top),
        }
        for model, summary in zip(models, summaries, strict=True)
    ]


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": _number(estimate.value), "error": _number(estimate.error)}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
