"""Squares of what the matrices of a compiled model are multiplied with, as it reads a text.

TVM's virtual machine tells of each kernel that it calls, with its arguments. A kernel of products
on a CPU takes the rows, float32 ``[rows, columns]``, and then its matrices. One for experts takes a
stack of matrices, and which of them each product is with: every row is multiplied once, or so many
times as experts are chosen for it. So any artifact will do, as it was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maxtool.errors import ModelMismatch, NegativeAnswer
from maxtool.evaluation.language_model import LanguageModel
from maxtool.evaluation.windows import Windows
from maxtool.runtime.loader.execution import Execution
from maxtool.runtime.loader.model import Model
from maxtool.runtime.loader.specs import WeightSpec
from maxtool.weights.importance_writing import ColumnSquares

Rows: TypeAlias = NDArray[np.float32]
# Told how many tokens were read since the last call.
Progress: TypeAlias = Callable[[int], None]


def candidates(model: Model) -> list[str]:
    """The weights that may be multiplied with: matrices and stacks of them, but no tables."""
    tables = {table.weight for table in model.manifest.tables}
    return [
        spec.name
        for spec in model.manifest.weights
        if len(spec.logical) > 1 and spec.name not in tables
    ]


def measure(
    model: LanguageModel, windows: Windows, names: Iterable[str], progress: Progress
) -> dict[str, ColumnSquares]:
    """Read a text, and sum the squares for weights by name.

    Raises:
        ModelMismatch: If the model does not run on one CPU, or what a weight is multiplied with
            cannot be seen.
        NegativeAnswer: If numbers are not finite, or too large for float32.
    """
    with _Watch(model, names) as watch:
        for ids in windows.ids:
            model.logits(ids)
            progress(len(ids))
    _check(model, watch.squares, windows.ids.size)
    return watch.squares


class _Watch:
    """The sums of weights by name, added to by each call of a kernel in the block."""

    def __init__(self, model: LanguageModel, names: Iterable[str]) -> None:
        execution = model.loaded._execution
        manifest = model.loaded.manifest
        if not isinstance(execution, Execution) or manifest.target.get("kind") != "cpu":
            what = "importance is measured on one CPU, and this model is for other devices"
            hint = "compile it with --target cpu"
            raise ModelMismatch(what, file=model.folder, hint=hint)
        compiled, wanted = execution._compiled, set(names)
        pairs = zip(compiled.weights, manifest.weights, strict=True)
        self._specs = {int(t.data_ptr()): spec for t, spec in pairs if spec.name in wanted}
        self._instrument = compiled.machine.get_function("set_instrument")
        self.squares = {spec.name: _zeros(spec) for spec in self._specs.values()}

    def __enter__(self) -> _Watch:
        self._instrument(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._instrument(None)

    def _note(self, *call: Any) -> int:  # noqa: ANN401 - a function, its name, ...
        """Note a call, which the virtual machine tells of before it and after it."""
        _, _, is_before, _, *arguments = call
        if is_before:
            self._add([each for each in arguments if hasattr(each, "data_ptr")])
        return 0  # which lets the call happen

    def _add(self, tensors: Sequence[Any]) -> None:
        """Add to the sums of the matrices that a kernel multiplies; subgraphs take no rows."""
        specs = list(filter(None, (self._specs.get(int(each.data_ptr())) for each in tensors)))
        rows = tensors[0] if specs else None
        if rows is None or str(rows.dtype) != "float32" or len(rows.shape) != 2:
            return
        array = np.asarray(np.from_dlpack(rows), np.float32)
        for spec in specs:
            if array.shape[1] == spec.logical[-1]:
                each = self.squares[spec.name]
                if len(spec.logical) == 2:
                    _add_rows(each, 0, array)
                else:
                    chosen = np.asarray(np.from_dlpack(tensors[2]), np.int64)
                    _add_chosen(each, array, chosen)


def _zeros(spec: WeightSpec) -> ColumnSquares:
    matrices = spec.logical[0] if len(spec.logical) > 2 else 1
    return ColumnSquares(np.zeros((matrices, spec.logical[-1])), np.zeros(matrices, np.int64))


def _add_rows(squares: ColumnSquares, matrix: int, rows: Rows) -> None:
    squares.sums[matrix] += np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
    squares.counts[matrix] += len(rows)


def _add_chosen(squares: ColumnSquares, rows: Rows, chosen: NDArray[np.int64]) -> None:
    """Add the rows of each expert that was chosen."""
    times = len(chosen) // len(rows)
    for expert in np.unique(chosen):
        _add_rows(squares, expert, rows[np.flatnonzero(chosen == expert) // times])


def _check(model: LanguageModel, squares: Mapping[str, ColumnSquares], tokens: int) -> None:
    """Refuse sums that are not of all tokens, each of them once or once for each of its experts."""
    unseen = [name for name, each in squares.items() if not _is_whole(each, tokens)]
    if unseen or not squares:
        what = "what these are multiplied with cannot be seen" if unseen else "it has no matrices"
        hint = "compile the model again, with this release of maxtool"
        raise ModelMismatch(what, file=model.folder, problems=unseen, hint=hint)
    with np.errstate(over="ignore"):
        wrong = [n for n, s in squares.items() if not np.isfinite(s.sums.astype(np.float32)).all()]
    if wrong:
        what = "squares of what these are multiplied with are not finite numbers in float32"
        raise NegativeAnswer(what, file=model.folder, problems=wrong)


def _is_whole(squares: ColumnSquares, tokens: int) -> bool:
    total = int(squares.counts.sum())
    return total == tokens if len(squares.counts) == 1 else total > 0 and total % tokens == 0
