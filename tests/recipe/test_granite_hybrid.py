"""Granite 4 with state spaces: keys that say one thing twice, and positions as they are written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maxtool.recipe import load_recipe, resolve_config, written_keys
from tests.variants.rows import Files, rows


def test_the_width_of_the_mlp_is_that_of_the_shared_one(tmp_path: Path) -> None:
    """Read no width of experts where there are none, as transformers, and write both keys."""
    row = next(rows("granitehybrid"))
    width = row.config["shared_intermediate_size"]
    changed = replace(row, config=row.config | {"intermediate_size": width + 40})
    found = resolve_config(load_recipe("granitehybrid"), Files(tmp_path).checkpoint(changed))
    assert found.values["intermediate_size"] == width
    keys = written_keys(load_recipe("granitehybrid"), "hf", found.values)
    assert [keys[key] for key in ("intermediate_size", "shared_intermediate_size")] == [width] * 2


@pytest.mark.parametrize("name", ["granitehybrid", "granitemoehybrid"])
@pytest.mark.parametrize("said", ["rope", "nope", None])
def test_positions_are_written_back(name: str, said: str | None, tmp_path: Path) -> None:
    row = next(rows(name))
    changed = replace(row, config=row.config | {"position_embedding_type": said})
    values = resolve_config(load_recipe(name), Files(tmp_path).checkpoint(changed)).values
    assert values["position"] == ("rope" if said == "rope" else "none")
    keys = written_keys(load_recipe(name), "hf", values)
    assert keys["position_embedding_type"] == said or values["position"] == "none"
    assert written_keys(load_recipe(name), "gguf", values)
