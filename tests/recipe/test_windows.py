"""Which layers see a window where the configuration does not list them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from maxtool.recipe import find_recipe, resolve_config
from maxtool.weights import open_checkpoint

DATA = Path(__file__).resolve().parents[1] / "data"


def test_smollm3_gives_it_to_the_layers_that_do_not_rotate(tmp_path: Path) -> None:
    folder = tmp_path / "smollm3"
    shutil.copytree(DATA / "tiny-smollm3", folder)
    config = json.loads((folder / "config.json").read_text())
    del config["layer_types"]
    config |= {"use_sliding_window": True, "sliding_window": 5, "no_rope_layers": [1, 0, 1, 0]}
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(folder)
    values = resolve_config(find_recipe(checkpoint), checkpoint).values
    assert values["sliding_window"] == 5
    assert values["sliding_layers"] == (False, True, False, True)
