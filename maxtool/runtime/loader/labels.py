"""Labels with their scores, the best ones first, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .memory import Array
from .terminal import emit, printable

SCHEMA = "maxtool.labels/1"
# Labels shown, where nothing is asked for.
SHOWN = 5
PROBABILITY, SCORE = "probability", "score"


def best(
    scores: Array, labels: Sequence[str] | None, shown: int, what: str
) -> list[dict[str, object]]:
    """The first labels by their scores, which ``what`` is the key of; equal ones in their order."""
    order = np.argsort(-scores, kind="stable")[:shown].tolist()
    return [
        {
            "label": str(number) if labels is None else labels[number],
            "index": number,
            what: float(scores[number]),
        }
        for number in order
    ]


def show(found: Sequence[dict[str, object]], what: str, *, shares: bool) -> None:
    """Print a line for each label, with its share in percent or its score as it is."""
    for one in found:
        score = float(str(one[what]))
        number = f"{100 * score:6.2f} %" if shares else f"{score:9.4f}"
        emit(f"{number}  {printable(str(one['label']))}\n")
