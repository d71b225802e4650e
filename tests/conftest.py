"""Fixtures that every room's tests may use."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import effort
from tests.accelerators import accelerators
from tests.closing import pytest_sessionfinish

__all__ = ["accelerators", "pytest_sessionfinish"]

# Machines that are busy with something else are slow now and then; that is not a finding. The same
# examples each time, so that a change is judged by what it changed; `make explore` draws new ones.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    max_examples=30,
)
settings.register_profile(
    "explore", settings.get_profile("patient"), derandomize=False, max_examples=100
)
settings.register_profile("quick", settings.get_profile("patient"), max_examples=25)
settings.load_profile("patient")

# Commands draw for the terminal they find: a runner's own must not decide what is compared.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# The virtual machine's threads are waited for, not looked for in a loop: on a machine whose cores
# are busy, a sixth of all time went there. Starting NumPy's is half of what importing it takes, and
# hundreds of tests start a program.
os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help=str(effort.__doc__).splitlines()[0])
    parser.addoption(
        "--everything", action="store_true", help="every family and all damage, not a sample"
    )
    parser.addoption("--by-folder", action="store_true", help="end with each folder's seconds")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--everything"):
        effort.be_thorough()
    if config.getoption("--quick"):
        effort.be_quick()
        if not config.getoption("--hypothesis-profile"):
            settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs with ``--everything``."""
    effort.sample_slow(items)
    if not config.getoption("--everything"):
        items[:], left = effort.unexplored(items)
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Set what is optimised, before the fixtures that the test is the first to ask for."""
    effort.optimise_for(item)


def pytest_collection_finish() -> None:
    """Freeze all imported objects: garbage collections need not look at them again."""
    gc.freeze()


@pytest.fixture
def little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave 1000 bytes free on every disk."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the notes of what was verified out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Leave what tests write to the system: it need not outlast a loss of power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimise the code the test compiles, whatever else is not."""
    monkeypatch.setattr("maxtool.compiler.cpu_target.OPT_LEVEL", effort.USUAL)


@pytest.fixture
def unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimise nothing that the test compiles, although it is among those of kernels."""
    monkeypatch.setattr("maxtool.compiler.cpu_target.OPT_LEVEL", effort.NONE)


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference checkpoints beside the checkout."""
    if not REFERENCE.is_dir():
        pytest.skip(f"the reference checkpoints are missing: no folder {REFERENCE}")
    return REFERENCE


@pytest.fixture
def interruptible() -> Callable[[], None]:
    """Return a ``preexec_fn`` that lets a child be interrupted even where the test's shell cannot.

    A shell in the background ignores SIGINT, nohup SIGHUP, and their children inherit that.
    """

    def restore() -> None:
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(kind, signal.SIG_DFL)

    return restore
