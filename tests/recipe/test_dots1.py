"""dots.llm1: windows of configurations that say of no layer whether it has one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maxtool.recipe import load_recipe, resolve_config
from tests.data.seeded import Config
from tests.variants.rows import Files, rows


@pytest.mark.parametrize(("more", "first"), [({}, 62), ({"max_window_layers": 1}, 1)])
def test_windows_begin_behind_62_layers(more: Config, first: int, tmp_path: Path) -> None:
    """Read what transformers' class has where ``max_window_layers`` is missing."""
    row = next(row for row in rows("dots1") if row.config.get("sliding_window"))
    left = {"layer_types", "max_window_layers"}
    config = {key: each for key, each in row.config.items() if key not in left} | more
    checkpoint = Files(tmp_path).checkpoint(replace(row, config=config))
    layers = resolve_config(load_recipe("dots1"), checkpoint).values["sliding_layers"]
    assert layers == tuple(first <= at for at in range(row.config["num_hidden_layers"]))
