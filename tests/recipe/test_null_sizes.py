"""Rules with a size that is a field which a model has not."""

from __future__ import annotations

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe.rule import resolve_size


def test_a_size_that_is_null_is_named() -> None:
    """Say which field it is, rather than that None is not a number."""
    values = {"heads": 4, "shared_expert_size": None}
    assert resolve_size(("heads", 3), values) == 12
    with pytest.raises(ConfigurationError, match="the size shared_expert_size, which is null"):
        resolve_size(("heads", "shared_expert_size"), values)
