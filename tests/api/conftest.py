"""Fixtures for the examples of the reference documents."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from maxtool import driver
from maxtool.errors import MissingDevice
from tests.accelerators import standing_in


@pytest.fixture(params=["the machine's", "parts of the host"])
def accelerator(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AbstractContextManager[Any]]:
    """Return the context ``with accelerator:`` around an example that uses ``Accelerator()``.

    Once with the machine's own, where an example on a machine without GPU must end with the error
    that says so, and once with other parts of the host standing in for GPUs.
    """
    if request.param == "parts of the host":
        with standing_in(monkeypatch):
            yield nullcontext()
    elif driver.accelerator_count():
        yield nullcontext()
    else:
        yield pytest.raises(MissingDevice, match="there is no gpu:0 here")
