"""What the examples of the reference documents are run with."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import pytest

from maxtool import driver
from maxtool.errors import MissingDevice

# Rooms that are being built: their tests run as soon as they are there.
NEEDS = {
    "test_behaviour_layers.py": "maxtool.nn.layer",
    "test_examples_layer.py": "maxtool.nn.layer",
    "test_layers.py": "maxtool.nn.layer",
}
collect_ignore = [file for file, module in NEEDS.items() if find_spec(module) is None]


@pytest.fixture(params=["the machine's", "CPU(1)"])
def accelerator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AbstractContextManager[Any]:
    """For ``with accelerator:`` around an example that uses ``Accelerator()``.

    Once with the machine's own, where an example on a machine without GPU must end with the error
    that says so, and once with other parts of the host standing in for GPUs.
    """
    if request.param == "CPU(1)":
        monkeypatch.setattr(driver, "Accelerator", lambda id=0: driver.CPU(id + 1))  # noqa: A006
        return nullcontext()
    if driver.accelerator_count():
        return nullcontext()
    return pytest.raises(MissingDevice, match="there is no gpu:0 here")
