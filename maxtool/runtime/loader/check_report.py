"""The model on this machine beside the outputs that were recorded when it was compiled."""

from __future__ import annotations

from pathlib import Path

from .comparison import Comparison
from .errors import BadInput, BadUsage, Disagrees, NotVerified
from .manifest import Manifest
from .opening import open_model
from .options import CommonOptions
from .recorded_checks import FILE
from .recorded_checks import load as load_trials
from .terminal import emit, emit_json, printable

TOLD = ("passed", "relative_error", "max_abs_error", "argmax_agreement")  # of each in JSON


def run_check(options: CommonOptions) -> None:
    """Run what was recorded, and compare: ``Disagrees`` where an output is too far off."""
    path = _recorded(Manifest(options.folder), verified=options.verify)
    trials = load_trials(path)
    model = open_model(options)
    comparisons = {trial.name: trial.compare(model) for trial in trials}
    worst = max(comparisons.values(), key=lambda one: one.relative_error, default=None)
    if worst is None:
        raise BadInput("no output is recorded", file=path)
    if options.json:
        emit_json("maxtool.check/1", _as_json(comparisons, worst))
    else:
        for name, one in comparisons.items():
            emit(printable(f"{name}: {one}") + "\n")
    if failed := [name for name, comparison in comparisons.items() if not comparison.passed]:
        what = "the model does not compute what was recorded"
        raise Disagrees(what, file=path, problems=failed)


def _recorded(manifest: Manifest, *, verified: bool) -> Path:
    path = manifest.folder / FILE
    if not path.is_file():
        raise BadUsage(
            "this model has no recorded outputs",
            file=manifest.folder,
            hint="compile it with --check for a target other than the machine that compiles it",
        )
    if verified and path not in manifest.files:
        what = f"{FILE} is not listed in the manifest"
        raise NotVerified(what, file=path, hint="--no-verify reads it anyway")
    return path


def _as_json(comparisons: dict[str, Comparison], worst: Comparison) -> dict[str, object]:
    return {
        "passed": all(comparison.passed for comparison in comparisons.values()),
        "relative_error": worst.relative_error,
        "rtol": worst.rtol,
        "atol": worst.atol,
        "trials": {
            name: {key: getattr(one, key) for key in TOLD} for name, one in comparisons.items()
        },
    }
