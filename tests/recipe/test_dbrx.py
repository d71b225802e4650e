"""DBRX: shares of experts that are divided by no norm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe, resolve_config, written_keys
from tests.variants.rows import Files, rows

KEY = "moe_normalize_expert_weights"


def values(said: dict[str, object], tmp_path: Path) -> dict[str, object]:
    row = next(row for row in rows("dbrx") if row.expected is not None)
    table = {key: value for key, value in row.config["ffn_config"].items() if key != KEY} | said
    checkpoint = Files(tmp_path).checkpoint(
        replace(row, config={**row.config, "ffn_config": table})
    )
    return dict(resolve_config(load_recipe("dbrx"), checkpoint).values)


def test_null_is_no_norm(tmp_path: Path) -> None:
    assert values({}, tmp_path / "a")["norm_topk"] is True
    found = values({KEY: None}, tmp_path / "b")
    assert found["norm_topk"] is False
    with pytest.raises(ConfigurationError, match="norm_topk = False has no spelling in gguf"):
        written_keys(load_recipe("dbrx"), "gguf", found)
    with pytest.raises(ConfigurationError, match=r"divided by a norm of 2.0"):
        values({KEY: 2.0}, tmp_path / "c")
