"""Checks: the outputs of an artifact against those of its graphs, or of the original model.

Outputs of the graphs in float64 show that the machine code computes the graphs. They cannot show
that a recipe reads a checkpoint as it was meant: the original model can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact import check_lengths
from maxtool.artifact.allowed_error import with_rounding
from maxtool.artifact.check_calls import (
    CACHED,
    ILLUSTRATED,
    behind_source,
    illustrated_calls,
    in_turn_calls,
    slotted_calls,
)
from maxtool.artifact.check_inputs import draw
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.graph_outputs import GraphRunner
from maxtool.artifact.observed import Observe, observing
from maxtool.errors import ConfigurationError, ParityFailed, translated
from maxtool.recipe.schema import Tolerance as RecipeTolerance
from maxtool.runtime import loader
from maxtool.runtime.loader import recorded_checks
from maxtool.runtime.loader.comparison import Comparison, Tolerance
from maxtool.runtime.loader.errors import DoesNotFit
from maxtool.runtime.loader.image_entries import PIXELS
from maxtool.runtime.loader.recorded_checks import RecordedCall, RecordedCheck, Runner
from maxtool.runtime.loader.specs import ENCODE, LOOK

Array: TypeAlias = np.ndarray[Any, Any]

GRAPH, TRANSFORMERS, ONNXRUNTIME = "graph", "transformers", "onnxruntime"
LARGEST = 1 << 23
"""Numbers that an output may have; it is for fewer tokens where it would have more of them."""
DECODED, DECODED_PAST = 3, 11
"""Tokens of a decoder that come one at a time, and at most so many where they pass a window's end:
each of them takes the reference a sweep over all weights."""
DRAWING = ("sample_prefill", "sample_decode")
"""Functions that draw tokens, which rounding may change."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference: its name, and what makes its runner of an artifact's contents on one device."""

    name: str
    make: Callable[[Contents], Runner]


GRAPHS = Reference(GRAPH, GraphRunner)


class CallRefused(ConfigurationError):
    """A reference does not run a call; it may run others."""


@dataclass(frozen=True, slots=True)
class RecordedChecks:
    """The recorded comparisons."""

    each: tuple[RecordedCheck, ...]  # the calls, and the expected outputs
    against: str  # ``graph`` or ``transformers``, which gave these
    tokens: int  # how many are compared; 0 where the model has no tokens
    # Lengths, ascending, beyond which the artifact computes otherwise, and which are not passed:
    # windows, and contexts of rotary scalings.
    unreached: tuple[int, ...] = ()
    calls: int = 0  # how many are compared where there are no tokens


@dataclass(frozen=True, slots=True)
class PassedCheck:
    """A check that was passed."""

    trials: RecordedChecks
    # The comparison that is furthest off; None where outputs were recorded for another machine.
    worst: Comparison | None
    # Whether the recipe, if there is one, was ever compared with original models.
    is_verified: bool = True

    def __str__(self) -> str:
        trials, source = self.trials, PROOFS[self.trials.against]
        tokens = f" with {trials.tokens} tokens" if trials.tokens else ""
        tokens = f" with {trials.calls} calls" if trials.calls else tokens
        if self.worst is None:
            return f"outputs{tokens} of {source} recorded, to be checked where it runs"
        return f"checked{tokens} against {source}: {self.worst}"

    @property
    def counts(self) -> dict[str, object]:
        """Return the manifest's record of the amount compared."""
        if self.trials.calls:
            return {"calls": self.trials.calls}
        return {"tokens": self.trials.tokens, "unreached": self.trials.unreached}


PROOFS = {
    GRAPH: "the graph (the compilation, not the reading)",
    TRANSFORMERS: "the original model in transformers (the reading, too)",
    ONNXRUNTIME: "the original model in onnxruntime (the reading, too)",
}
"""What outputs are compared with, and what this proves, in words."""
FAILED = {
    GRAPH: "its graph",
    TRANSFORMERS: "the original model in transformers",
    ONNXRUNTIME: "the original model in onnxruntime",
}
ROUNDED = "that is computed in float32 itself; --check graph compares with float64"


def check(
    folder: Path, trials: RecordedChecks, *, here: bool, observe: Observe | None = None
) -> PassedCheck:
    """Compare an artifact with what a reference gave; record that if it is not for this machine.

    ``observe`` is told of every output that is compared, those that fail included.
    """
    if not here:
        recorded_checks.save(folder / recorded_checks.FILE, trials.each)
    return PassedCheck(trials, _worst(folder, trials, observe) if here else None)


def _worst(folder: Path, trials: RecordedChecks, observe: Observe | None) -> Comparison:
    """Compare, and return the comparison that is furthest off."""
    passed, problems = [], []
    try:
        model = loader.load(folder)
        for trial in trials.each:
            result = _result(trial, model, observe)
            if isinstance(result, Comparison) and result.passed:
                passed.append(result)
            else:
                problems.append(f"{trial.name}: {result}")
    except loader.RunError as error:
        raise translated(error) from error
    if problems:
        raise ParityFailed(
            f"the compiled model does not compute what {FAILED[trials.against]} computes",
            problems=problems,
            hint=None if trials.against == GRAPH else ROUNDED,
        )
    return max(passed, key=lambda result: (result.relative_error, result.size))


def _result(trial: RecordedCheck, model: Runner, observe: Observe | None) -> Comparison | str:
    """Compare, or return the reason why the output cannot be compared."""
    try:
        return trial.compare(model, None if observe is None else observing(trial, observe))
    except DoesNotFit as error:
        return error.what.removeprefix(f"{trial.name}: ")


def _require_finite(trials: Sequence[RecordedCheck], against: str) -> None:
    """Refuse a reference without a result: it would agree with an artifact that has none either."""
    counts = {trial.name: int((~np.isfinite(trial.expected)).sum()) for trial in trials}
    if problems := [f"{name}: {count} values" for name, count in counts.items() if count]:
        what = f"what {FAILED[against]} computes is NaN or infinite"
        raise ParityFailed(what, problems=problems, hint="look for damaged or overflowing weights")


def trials_of(
    contents: Contents,
    tolerance: RecipeTolerance,
    reference: Reference = GRAPHS,
    exact: Contents | None = None,
) -> RecordedChecks:
    """Call all functions of a model, the cached ones of a decoder in turn, on a reference.

    There are as many tokens as :mod:`maxtool.artifact.check_lengths` says. ``exact`` are contents
    whose graphs do not round to blocks, where these do.
    """
    allowed = Tolerance(tolerance.rtol, tolerance.atol)
    work = sum(math.prod(one.shape) for one in contents.storage.values())
    length = check_lengths.tokens(contents.turns, work, contents.context)
    runner = reference.make(exact or contents)
    unreached = [
        one for one in check_lengths.reachable(contents.turns, contents.context) if one >= length
    ]
    asked = _asked(contents, length, allowed)
    each = [replace(trial, expected=trial.run(runner)) for trial in asked]
    _require_finite(each, reference.name)
    if reference is GRAPHS and (contents.rounding or exact):
        each = with_rounding(contents, each)
    tokens = length if contents.context else 0
    return RecordedChecks(tuple(each), reference.name, tokens, tuple(unreached))


def _asked(contents: Contents, length: int, allowed: Tolerance) -> Iterator[RecordedCheck]:
    """The calls, without what is expected of them."""
    functions = {function.name: function for function in contents.functions}
    in_turn = CACHED if functions.keys() >= set(CACHED) else ()
    for name, function in functions.items():
        if name in (*in_turn, *DRAWING, LOOK):
            continue
        few = min(length, check_lengths.TOKENS) if _is_large(function, length) else length
        call = RecordedCall(name, draw(contents, function, few))
        for output in function.outputs:
            yield RecordedCheck(f"{name}, {output}", [call], output, NOTHING, allowed)
    if in_turn:
        ids = draw(contents, functions[CACHED[0]], length)["input_ids"]
        passes = any(turn < length for turn in contents.turns)
        calls = in_turn_calls(ids, DECODED_PAST if passes else DECODED)
        if (slots := contents.facts.get("batch")) is not None:
            calls = list(slotted_calls(calls, int(str(slots))))
        if (encode := functions.get(ENCODE)) is not None:
            calls = [*behind_source(calls, RecordedCall(ENCODE, draw(contents, encode, length)))]
        yield RecordedCheck(" and ".join(CACHED), calls, "logits", NOTHING, allowed)
    if (look := functions.get(LOOK)) is not None:
        drawn = draw(contents, functions[CACHED[0]], ILLUSTRATED)["input_ids"]
        facts: Any = contents.facts["image_tokens"]
        ids = np.where(drawn == facts["token"], 0, drawn)  # one that stands for an image
        pixels = draw(contents, look, 1)[PIXELS]
        (seen,) = look.output_types.values()
        slots = int(str(contents.facts.get("batch", 1)))
        calls = illustrated_calls(ids, pixels, int(seen.shape[1]), slots)
        yield RecordedCheck("a text with an image", calls, "logits", NOTHING, allowed)


NOTHING: Array = np.zeros(0)


def _is_large(function: NamedGraph, length: int) -> bool:
    """Return whether an output for one text has more numbers than it may."""
    sizes = [
        [int(dim) if dim.is_static else length for dim in kind.shape[1:]]
        for kind in function.output_types.values()
    ]
    return any(math.prod(size) > LARGEST for size in sizes)
