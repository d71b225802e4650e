"""The table of families in docs/models.md, beside what is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxtool.recipe import recipe_names
from tests.effort import sampled
from tests.variants.errors import DECODERS, of_files, of_folders, recipe_of, told

# Families that are called as their recipes are.
NAMED = [family for family in DECODERS if family in told()]
ROUNDED = 1.06
"""How much larger an error may be than one that is written with two digits."""


def test_the_table_has_the_families() -> None:
    assert len(told()) >= 60
    assert told().keys() <= {*recipe_names()}


@pytest.mark.slow
@pytest.mark.parametrize("family", sampled(NAMED, share=20))
def test_errors_are_no_larger_than_told(family: str, tmp_path: Path) -> None:
    found = told()[recipe_of(family, tmp_path / "recipe")]
    (tmp_path / "files").mkdir()
    assert max(of_folders(family, tmp_path / "folders")) < found.folders * ROUNDED
    assert (
        found.files is None
        or max(of_files(family, tmp_path / "files"), default=0.0) < found.files * ROUNDED
    )
