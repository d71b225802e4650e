"""Configurations that say anything: an error that names the file, never a crash or a hang."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.errors import MaxtoolError
from maxtool.weights.checkpoint import open_checkpoint
from tests.effort import examples
from tests.parity.measure import CONVERTED, DATA, FOLDERS
from tests.parity.traced import TracedModel

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**62, 2**63, 10**400, -(10**400)]),
    st.floats(),
    st.sampled_from(["", "yarn", "dynamic", "longrope", "sliding_attention", "\x00"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
ARRAYS = st.sampled_from([np.zeros(2, np.int32), np.ones(0, np.float32), np.array([True, False])])
EXTRA = ("rope_scaling", "rope_parameters", "layer_types", "head_dim", "sliding_window")


def changed(data: st.DataObject, values: Mapping[str, Any], kinds: st.SearchStrategy[Any]) -> Any:
    """Some of the values replaced, or such as are often there added."""
    keys = st.sampled_from(sorted({*values, *EXTRA}))
    return {**values, **data.draw(st.dictionaries(keys, kinds, min_size=1, max_size=3))}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FOLDERS)
@settings(max_examples=examples(5, 12))
@given(data=st.data())
def test_any_config(name: str, data: st.DataObject) -> None:
    checkpoint = open_checkpoint(DATA / name)
    config = json.loads((DATA / name / "config.json").read_text())
    if data.draw(st.booleans()) and isinstance(config.get("rope_scaling"), dict):
        config["rope_scaling"] = changed(data, config["rope_scaling"], VALUES)
    else:
        config = changed(data, config, VALUES)
    try:
        TracedModel(replace(checkpoint, config=config))
    except MaxtoolError as error:
        assert error.file is not None


@pytest.mark.sampled
@pytest.mark.parametrize("name", CONVERTED)
@settings(max_examples=examples(5, 12))
@given(data=st.data())
def test_any_metadata(name: str, data: st.DataObject) -> None:
    checkpoint = open_checkpoint(DATA / name / f"{name}-f32.gguf")
    metadata = changed(data, checkpoint.metadata, st.one_of(VALUES, ARRAYS))
    try:
        TracedModel(replace(checkpoint, metadata=metadata))
    except MaxtoolError as error:
        assert error.file is not None
