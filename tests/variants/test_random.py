"""What ``tests/data/record_random.py`` recorded: many keys of a configuration changed at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.effort import thinned
from tests.variants import gguf_keys
from tests.variants.judge import Judge
from tests.variants.rows import RANDOM

# A decoder with every scaling, and an encoder.
KINDS = ("llama", "bert")


@pytest.mark.parametrize("family", thinned(RANDOM, *KINDS))
def test_a_family(family: str, tmp_path: Path) -> None:
    """It is read, converted as llama.cpp's converter does, read from there, and converted back."""
    judge = Judge([family], tmp_path)
    assert not list(judge.problems())
    case = judge.file(family)
    if case is not None and case.usual is not None:
        found = gguf_keys.measured(case.usual.recipe, case.checkpoint)
        assert found == gguf_keys.recorded()[family]


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    judge = Judge(["bert"], tmp_path)
    row = judge.cases("bert")[0].row
    assert row.expected is not None
    np.multiply(row.expected, 1.001, out=row.expected)
    assert any("off" in problem for problem in judge.problems())


def test_another_gguf_file_is_seen(tmp_path: Path) -> None:
    judge = Judge(["bert"], tmp_path)
    more = judge.cases("bert")[0].row.more
    keys = more["gguf"]["keys"]
    more["gguf"] = {**more["gguf"], "keys": {**keys, "bert.block_count": 7}}
    assert any("bert.block_count" in problem for problem in judge.problems())
