"""Granite Swash: the bases of layers that rotate, as they are written."""

from __future__ import annotations

import json
from pathlib import Path

from maxtool.recipe import load_recipe, written_keys
from tests.recipe.test_published import PUBLISHED, resolved


def test_bases_are_written_where_transformers_reads_them(tmp_path: Path) -> None:
    """Write a base for each layer, 0 for those that do not rotate, and one for all."""
    config = PUBLISHED["granite-swash-2b"]["config"]
    _, found = resolved(tmp_path, config)
    keys = written_keys(load_recipe("granite_swa"), "hf", found.values)
    assert keys["layer_rope_theta"] == json.loads(json.dumps(config["layer_rope_theta"]))
    assert keys["rope_parameters.rope_theta"] == 10000.0
    assert not {"no_rope_layers", "rope_theta"} & keys.keys()
