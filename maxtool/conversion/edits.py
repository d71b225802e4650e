"""Edits of the tensors of an output: which there are, what they are called, and of what type.

They are steps of a plan, in this order: selected, renamed, cast. Each sees what the one before
left, and a pattern that nothing matches is an error, as it is mistyped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from maxtool.casting import cast
from maxtool.conversion.edit_request import ANY, TensorEdits, renamed
from maxtool.conversion.output_tensors import TensorSource
from maxtool.conversion.streaming import LOST, check_cast
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.recipe import OutputTensor
from maxtool.weights.names import did_you_mean, first_of, listed


def edited(
    tensors: Sequence[TensorSource], edits: TensorEdits, *, allow_nonfinite: bool = False
) -> list[TensorSource]:
    """Return the tensors that are written, under the names and as the types they are to have."""
    result = _renamed(_selected(tensors, edits), edits.renames)
    return _cast(result, edits.casts, allow_nonfinite=allow_nonfinite)


def _selected(tensors: Sequence[TensorSource], edits: TensorEdits) -> list[TensorSource]:
    names = [spec.name for spec, _ in tensors]
    for option, patterns in (("--include", edits.include), ("--exclude", edits.exclude)):
        for pattern in patterns:
            _need_match(option, pattern, names)
    kept = [(spec, source) for spec, source in tensors if edits.selects(spec.name)]
    if tensors and not kept:
        raise UsageError("--include and --exclude leave no tensor")
    return kept


def _renamed(
    tensors: Sequence[TensorSource], renames: Sequence[tuple[str, str]]
) -> list[TensorSource]:
    names = [spec.name for spec, _ in tensors]
    for old, new in renames:
        if new.split(".").count(ANY) > old.split(".").count(ANY):
            raise UsageError(f"--rename {old}={new}: a * after the sign needs one before it")
        before, names = names, [renamed(name, old, new) for name in names]
        if before == names:
            what = f"--rename {old}={new} changes no name"
            raise UsageError(what, hint=did_you_mean(old, before))
    twice = [name for name, count in Counter(names).items() if count > 1 or not name]
    if twice:
        what = "--rename gives several tensors one name, or a tensor none"
        raise UsageError(what, problems=listed(twice))
    pairs = zip(tensors, names, strict=True)
    return [(replace(spec, name=name), source) for (spec, source), name in pairs]


def _cast(
    tensors: Sequence[TensorSource], casts: Sequence[tuple[str, DType]], *, allow_nonfinite: bool
) -> list[TensorSource]:
    """Give floats the type of the last pattern that matches; integers stay as they are."""
    floats = [spec.name for spec, _ in tensors if spec.encoding or spec.dtype.is_float()]
    for pattern, _ in casts:
        _need_match("--cast", pattern, floats)
    known = set(floats)
    result = []
    for spec, source in tensors:
        types = [dtype for pattern, dtype in casts if fnmatchcase(spec.name, pattern)]
        one = (spec, source)
        if types and spec.name in known:
            one = _as_type(one, types[-1], allow_nonfinite=allow_nonfinite)
        result.append(one)
    return result


def _as_type(tensor: TensorSource, dtype: DType, *, allow_nonfinite: bool) -> TensorSource:
    spec, source = tensor
    new = replace(spec, dtype=dtype, encoding=None)
    if isinstance(source, OutputTensor | str):
        return new, source
    values, lost = cast(source, dtype)
    check_cast(spec, new, {LOST: lost}, allow_nonfinite=allow_nonfinite)
    return new, values


def _need_match(option: str, pattern: str, names: Sequence[str]) -> None:
    if not any(fnmatchcase(name, pattern) for name in names):
        hint = did_you_mean(pattern, names) or f"there are {first_of(names, 3)}"
        raise UsageError(f"{option} {pattern}: no tensor has such a name", hint=hint)
