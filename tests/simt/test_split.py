"""A model on two GPUs, lowered for them and run here: each part by the interpreter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.runtime.loader.collectives import DeviceGroup, register
from maxtool.runtime.loader.host import Host
from tests.simt.dtypes import Array
from tests.simt.model import SimulatedModel

DATA = Path(__file__).resolve().parents[1] / "data"
COUNT = 2


class Processor(Host):
    """The host's memory, whatever the model was compiled for."""

    def __init__(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("source", ["tiny-llama", "tiny-mixtral"])
def test_the_parts_compute_what_the_whole_does(source: str) -> None:
    register()
    ids = np.array([[3, 1, 4]])
    whole = SimulatedModel(DATA / source, DType.float32, 8).run("forward", {"input_ids": ids})
    parts = [SimulatedModel(DATA / source, DType.float32, 8, (i, COUNT)) for i in range(COUNT)]
    group = DeviceGroup([Processor() for _ in parts])

    def run(rank: int) -> Array:
        with group.joined(rank):
            return parts[rank].run("forward", {"input_ids": ids})["logits"]

    with ThreadPoolExecutor(COUNT) as threads:
        results = list(threads.map(run, range(COUNT)))
    expected = whole["logits"]
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
