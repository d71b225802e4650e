"""GLM 5: which layers have an index, where files do not list them; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe, written_keys
from tests.recipe.test_published import PUBLISHED, resolved

CONFIG = PUBLISHED["GLM-5.2"]["config"]
LISTS = ("indexer_types", "index_skip_topk_offset")


def values(folder: Path, left: tuple[str, ...] = (), **changed: Any) -> dict[str, Any]:
    """The fields of the published configuration, some keys left out or changed."""
    kept = {key: value for key, value in CONFIG.items() if key not in left}
    return dict(resolved(folder, kept | changed)[1].values)


def test_indices_come_by_a_period_where_no_key_lists_them(tmp_path: Path) -> None:
    """Begin behind the second layer, as transformers does where no key says otherwise."""
    found = values(tmp_path, LISTS)["index_layers"]
    assert found == tuple(max(layer - 1, 0) % 4 == 0 for layer in range(78))


def test_each_layer_has_an_index_where_no_key_says_otherwise(tmp_path: Path) -> None:
    assert values(tmp_path, (*LISTS, "index_topk_freq"))["index_layers"] is None


def test_an_index_that_rotates_halves_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="indexer_rope_interleave = False"):
        values(tmp_path, indexer_rope_interleave=False)


@pytest.mark.parametrize("shared", [True, False])
def test_how_layers_that_predict_share_an_index_changes_nothing(
    tmp_path: Path, *, shared: bool
) -> None:
    assert values(tmp_path, index_share_for_mtp_iteration=shared) == values(tmp_path)


def test_no_layer_predicts_in_what_is_written(tmp_path: Path) -> None:
    written = written_keys(load_recipe("glm_moe_dsa"), "hf", values(tmp_path))
    assert written["num_nextn_predict_layers"] == 0
