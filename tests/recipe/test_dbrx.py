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


def test_other_norms_are_not_in_gguf(tmp_path: Path) -> None:
    found = values({KEY: 2.0}, tmp_path)
    assert (found["norm_topk"], found["topk_norm_order"]) == (True, 2.0)
    assert written_keys(load_recipe("dbrx"), "hf", found)[f"ffn_config.{KEY}"] == 2.0
    with pytest.raises(ConfigurationError, match=r"topk_norm_order = 2.0 has no spelling in gguf"):
        written_keys(load_recipe("dbrx"), "gguf", found)


@pytest.mark.parametrize("order", [0, -1.0, "2"])
def test_what_is_no_norm(order: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a positive number"):
        values({KEY: order}, tmp_path)
