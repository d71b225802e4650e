"""Calls of a model and the outputs of its reference, recorded when it was compiled.

The file is NumPy's npz: arrays named by number, and ``trials``, a text in JSON that says what they
are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .archive import read_arrays
from .comparison import Comparison, Tolerance, compare
from .errors import BadInput, DoesNotFit
from .memory import Array
from .specs import BITS
from .text_entries import SLOT

FILE = "check.npz"
PLAN = "trials"


class Runner(Protocol):
    """A model, compiled or not, whose entries are called with arrays by name."""

    def entry(self, name: str) -> Any:  # noqa: ANN401 - its own
        """An entry by name, whose ``state`` is true if its calls share memory."""

    def new_state(self, **dims: int) -> Any:  # noqa: ANN401 - its own
        """Zeroed state for the given sizes of named dimensions."""

    def run(self, name: str, inputs: Mapping[str, Array], state: Any = None, /) -> dict[str, Array]:  # noqa: ANN401
        """The outputs of an entry by name."""


@dataclass(frozen=True)
class RecordedCall:
    """One call: an entry, and its inputs by name."""

    entry: str
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class RecordedCheck:
    """Calls that follow each other, and what one of their outputs should be.

    The calls share one state where their entries have any.
    """

    name: str
    calls: Sequence[RecordedCall]
    output: str  # the name of the output that is compared
    # That output, of the calls that give it; of several one after the other, along axis 1 where the
    # rows of all are the same texts, and along axis 0 where each row says by its slot which text it
    # is of.
    expected: Array
    tolerance: Tolerance

    def run(self, model: Runner) -> Array:
        """Return the model's output."""
        first = self.calls[0]
        keeps = bool(model.entry(first.entry).state)
        state = model.new_state(batch=len(next(iter(first.inputs.values())))) if keeps else None
        results = [model.run(call.entry, call.inputs, state) for call in self.calls]
        outputs = [result[self.output] for result in results if self.output in result]
        if not outputs:
            raise KeyError(self.output)
        if SLOT in first.inputs:
            return np.concatenate(outputs)
        return outputs[0] if len(outputs) == 1 and not keeps else np.stack(outputs, axis=1)

    def compare(self, model: Runner, observe: Callable[[Array], None] | None = None) -> Comparison:
        """Compare the model's output with the expected one, which has the same shape.

        ``observe`` is told the output before.
        """
        try:
            actual = self.run(model)
            if observe is not None:
                observe(actual)
            return compare(actual, self.expected, self.tolerance)
        except (KeyError, ValueError) as error:
            raise DoesNotFit(f"{self.name}: {error}") from None


def save(path: Path, trials: Sequence[RecordedCheck]) -> None:
    """Write a file of trials."""
    arrays: dict[str, Array] = {}

    def kept(array: Array) -> str:
        name = str(len(arrays))
        wide, bits = array.dtype == np.float64, BITS.get(array.dtype.name)
        narrow = array.astype(np.float32) if wide else array
        arrays[name] = narrow if bits is None else narrow.view(bits)
        return name

    def asked(call: RecordedCall) -> dict[str, object]:
        inputs = {name: kept(array) for name, array in call.inputs.items()}
        return {"entry": call.entry, "inputs": inputs}

    plan = [
        {
            "name": trial.name,
            "output": trial.output,
            "expected": kept(trial.expected),
            **asdict(trial.tolerance),
            "calls": [asked(call) for call in trial.calls],
        }
        for trial in trials
    ]
    text = np.array(json.dumps({"trials": plan}))
    np.savez(path, **{PLAN: text}, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> list[RecordedCheck]:
    """Read a file of trials."""
    arrays, _ = read_arrays(path)
    try:
        plan = json.loads(str(arrays.pop(PLAN)))
        return list(_recorded_checks(plan["trials"], arrays))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"this holds no recorded outputs: {error!r:.200}"
        raise BadInput(what, file=path) from None


def _recorded_checks(
    plan: Sequence[Mapping[str, Any]], arrays: Mapping[str, Array]
) -> Iterator[RecordedCheck]:
    for trial in plan:
        calls = [
            RecordedCall(
                call["entry"], {name: arrays[kept] for name, kept in call["inputs"].items()}
            )
            for call in trial["calls"]
        ]
        if not calls or any(not call.inputs for call in calls):
            raise ValueError("a trial without a call, or a call without inputs")
        largest = trial.get("largest")
        tolerance = Tolerance(
            float(trial["rtol"]), float(trial["atol"]), None if largest is None else float(largest)
        )
        yield RecordedCheck(
            trial["name"], calls, trial["output"], arrays[trial["expected"]], tolerance
        )
