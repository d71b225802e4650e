"""Models that keep states, run by transformers: bounds of steps, and positions over calls."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.artifact.original_model import cache_name, load_model, positions
from maxtool.weights import Checkpoint
from tests.data.seeded import sample
from tests.parity.measure import error
from tests.variants.rows import ALLOWED, Files, inputs, rows

pytestmark = pytest.mark.peers
MAKER = "AutoModelForCausalLM"


@pytest.fixture(scope="module")
def torch() -> Any:
    pytest.importorskip("transformers")
    return pytest.importorskip("torch")


def written(family: str, folder: Path, **changes: object) -> Checkpoint:
    """The first recorded model of a family, with other keys of its configuration."""
    row = next(rows(family))
    row.config.update(changes)
    return Files(folder).checkpoint(row)


@pytest.mark.usefixtures("torch")
@pytest.mark.filterwarnings("ignore")
def test_steps_are_bounded_by_what_the_configuration_says(tmp_path: Path) -> None:
    model = load_model(MAKER, written("nemotron_h", tmp_path, time_step_min=0.25))
    bounds = [one.time_step_limit for one in model.modules() if hasattr(one, "time_step_limit")]
    assert bounds
    assert set(bounds) == {(0.0, inf)}


@pytest.mark.filterwarnings("ignore")
def test_positions_are_counted_over_calls(torch: Any, tmp_path: Path) -> None:
    row = next(rows("bamba"))
    model, cache, logits = load_model(MAKER, written("bamba", tmp_path)), None, []
    ids, first = torch.from_numpy(inputs(row)["input_ids"]), row.more["first"]
    for part in torch.split(ids, [first] + [1] * (ids.shape[1] - first), dim=1):
        told = positions(model, cache, part.shape[1])
        with torch.inference_mode():
            found = model(input_ids=part, **{cache_name(model): cache}, use_cache=True, **told)
        cache = found[cache_name(model)]
        logits.append(found.logits[:, -1:].numpy())
    recorded = np.array(row.more["cached"])
    assert error(sample(np.concatenate(logits, axis=1)), recorded) < ALLOWED
