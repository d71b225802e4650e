"""Tolerances for rounding: by each measure as much as rounding changes that one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from maxtool.artifact.allowed_error import FACTOR, with_rounding
from maxtool.runtime.loader import recorded_checks
from maxtool.runtime.loader.comparison import Tolerance, compare
from maxtool.runtime.loader.recorded_checks import RecordedCall, RecordedCheck

RNG = np.random.default_rng(0)
EXACT = RNG.standard_normal((4, 64))
# One outlier in errors that are small otherwise.
ROUNDING = 1e-3 * RNG.standard_normal(EXACT.shape)
ROUNDING[2, 5] = 0.5


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> RecordedCheck:
    """A comparison that allows the rounding."""

    class Rounding:
        def __init__(self, _contents: object, *, rounds: bool) -> None:
            assert rounds

    monkeypatch.setattr("maxtool.artifact.allowed_error.GraphRunner", Rounding)
    monkeypatch.setattr(RecordedCheck, "run", lambda *_: EXACT + ROUNDING)
    calls = [RecordedCall("forward", {"x": EXACT.astype("f4")})]
    plain = RecordedCheck("forward", calls, "y", EXACT, Tolerance(1e-5, 0.0))
    (allowing,) = with_rounding(None, [plain])  # type: ignore[arg-type]
    return allowing


def test_an_error_of_its_size_passes(trial: RecordedCheck) -> None:
    assert compare(EXACT - ROUNDING, EXACT, trial.tolerance).passed


def test_an_error_in_the_root_mean_square_alone_fails(trial: RecordedCheck) -> None:
    """Shift all elements far, but none as far as the outlier."""
    wrong = np.where(RNG.random(EXACT.shape) < 0.5, -0.25, 0.25)
    assert np.abs(wrong).max() < np.abs(ROUNDING).max()
    assert not compare(EXACT + wrong, EXACT, trial.tolerance).passed
    together = Tolerance(trial.tolerance.shares[1], 0.0)
    assert compare(EXACT + wrong, EXACT, together).passed, "it shows the difference"


def test_an_error_in_the_largest_alone_fails(trial: RecordedCheck) -> None:
    wrong = np.zeros_like(EXACT)
    wrong[0, 0] = 1.01 * FACTOR * np.abs(ROUNDING).max()
    assert not compare(EXACT + wrong, EXACT, trial.tolerance).passed


def test_both_are_recorded(trial: RecordedCheck, tmp_path: Path) -> None:
    file = tmp_path / "check.npz"
    recorded_checks.save(file, [trial])
    (loaded,) = recorded_checks.load(file)
    assert loaded.tolerance == trial.tolerance
