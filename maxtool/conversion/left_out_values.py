"""Values that an output has no place for: only zeros may be left out of what reads as zeros."""

from __future__ import annotations

from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.recipe import Dialect, Plan, taken_for_zero
from maxtool.recipe.layer_ranges import folded

HINT = "without it the output would be another model; Hugging Face's form has a place for it"


def check_left_out(planned: Plan, dialect: Dialect) -> None:
    """Check that all that a dialect takes for 0, as it has no place for it, is 0.

    Raises:
        ConfigurationError: If something is not; it lists all of that.
    """
    reasons = taken_for_zero(planned.recipe, dialect, planned.config, planned.parameters)
    problems = [
        f"{name} is not 0, and {reason}"
        for name, reason in reasons.items()
        if planned.read(name).astype(DType.float32).data.any()
    ]
    if problems:
        what = f"the weights cannot be written for {dialect}"
        file = planned.checkpoint.path
        raise ConfigurationError(what, file=file, problems=folded(problems), hint=HINT)
