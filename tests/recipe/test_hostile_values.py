"""Any value under any known key: an answer or one error, never a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from maxtool.recipe import Dialect, load_recipe, recipe_names
from maxtool.recipe.keys import Keys
from maxtool.recipe.read_config import _Reader
from maxtool.recipe.schema import DIALECTS
from maxtool.weights import Checkpoint, open_checkpoint
from tests.effort import examples

NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 7, 64, 2**31, 2**63, 0.0, 0.5, 1e-300, 1e300, 1e-3])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(["", "silu", "yarn", "llama3"])
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(st.just("type"), SCALARS)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("hostile")
    save_file({"x": np.zeros(1, np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return open_checkpoint(folder)


def plain(name: str, dialect: Dialect) -> dict[str, Any]:
    """Values that let most fields be read, so that those that follow from them are."""
    usual = {"int": 4, "count": 4, "float": 2.0}
    return {
        way.first.text: usual[field.type]
        for field in load_recipe(name).fields.values()
        for way in field.spellings.get(dialect, ())
        if way.first is not None and field.type in usual
    }


def known(name: str, dialect: Dialect) -> list[str]:
    fields = load_recipe(name).fields.values()
    keys = [k for f in fields for way in f.spellings.get(dialect, ()) for k in way.keys]
    return sorted(set(keys))


READ = [(name, one) for name in recipe_names() for one in DIALECTS if known(name, one)]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "dialect"), READ)
@settings(max_examples=examples(10, 25))
@given(data=st.data())
def test_any_values(
    checkpoint: Checkpoint, name: str, dialect: Dialect, data: st.DataObject
) -> None:
    drawn = data.draw(st.dictionaries(st.sampled_from(known(name, dialect)), VALUES, max_size=12))
    keys = Keys(dialect, plain(name, dialect) | drawn)
    reader = _Reader(load_recipe(name), checkpoint, keys)
    for item in reader.recipe.fields.values():
        reader.read(item)
    assert reader.values.keys() | reader.failed >= reader.recipe.fields.keys()
    assert not reader.failed or reader.problems
