"""Configurations that transformers computes, and recipes refuse: on purpose, since they are listed.

    python -m tests.variants.refused

writes the list anew and says what is new in it, which needs a reason.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from maxtool.errors import MaxtoolError
from maxtool.recipe import Recipe, find_recipe, load_recipe, plan
from maxtool.weights import Checkpoint
from tests.variants.rows import DATA, FAMILIES, Files, rows

RECORDED = DATA / "refused.json.gz"


def fits(recipe: Recipe, checkpoint: Checkpoint) -> bool:
    """Return whether a recipe reads a checkpoint's configuration and finds its tensors."""
    try:
        plan(recipe, checkpoint).check()
    except MaxtoolError:
        return False
    return True


def refused(family: str, folder: Path) -> Iterator[str]:
    """Yield the configurations of a family that its recipe refuses."""
    files = Files(folder)
    name: str | None = None
    for row in rows(family):
        if row.expected is None:
            continue
        checkpoint = files.checkpoint(row)
        name = name or find_recipe(checkpoint).name
        if not fits(load_recipe(name), checkpoint):
            yield f"{row.base} {json.dumps(row.change)}"


def recorded() -> dict[str, list[str]]:
    """Return the configurations that were refused when they were listed, by family."""
    return dict(json.loads(gzip.decompress(RECORDED.read_bytes())))


def _record() -> None:
    before = recorded() if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        now = {family: [*refused(family, Path(folder) / family)] for family in FAMILIES}
    for family in FAMILIES:
        old, new = set(before.get(family, ())), set(now[family])
        for sign, names in (("+", new - old), ("-", old - new)):
            sys.stdout.writelines(f"{sign} {family} {name}\n" for name in sorted(names))
    RECORDED.write_bytes(gzip.compress(json.dumps(now).encode(), mtime=0))


if __name__ == "__main__":
    _record()
