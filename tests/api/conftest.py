"""What the examples of the reference documents are run with."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from maxtool import driver
from maxtool.errors import MissingDevice


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
