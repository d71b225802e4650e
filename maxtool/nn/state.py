"""Loading a state: every problem found before the first tensor changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np

from maxtool.errors import MisshapenWeight, MissingWeight, ModelMismatch, UnexpectedWeight
from maxtool.graph import Tensor, Weight
from maxtool.nn.tree import Leaf
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.data import WeightData

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = "Array | Tensor | WeightData"


def as_data(name: str, value: object) -> WeightData:
    """A state's value with its name, dtype, shape and encoding.

    Raises:
        ValueError: If it is no array, or one of elements that no weight has.
    """
    if isinstance(value, WeightData):
        return value
    if isinstance(value, Tensor):
        value = value.to_numpy()
    elif not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = _from_dlpack(value)
    if not isinstance(value, np.ndarray):
        kind = type(value).__name__
        raise ValueError(
            f"a {kind}, not a NumPy array, a Tensor, a WeightData or anything with __dlpack__"
        )
    return WeightData.from_numpy(value, name)


def _from_dlpack(value: Any) -> Array:  # noqa: ANN401 - a protocol
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        raise ValueError(f"NumPy cannot read it by __dlpack__ ({error})") from None


def fitting(
    leaves: Iterable[Leaf],
    state: Mapping[str, Value],
    *,
    strict: bool = True,
    override_encoding: bool = False,
    align: int | None = None,
) -> dict[str, WeightData]:
    """The values of ``state`` for the leaves it names, every one of which fits.

    Args:
        leaves: The tensors to load.
        state: Values by full name.
        strict: Whether every name must be in both; else those in only one are passed over.
        override_encoding: Whether a value may be encoded in another way than declared.
        align: The alignment in bytes to ask of every value instead of the declared one.

    Raises:
        MissingWeight: If a name is missing (also a KeyError and a ValueError).
        UnexpectedWeight: Else, if a name is not used (also a ValueError).
        MisshapenWeight: Else, if a value does not fit; each lists all problems of every kind.
    """
    wanted = {leaf.name: leaf for leaf in leaves}
    found: dict[str, WeightData] = {}
    misfits = []
    for name in state.keys() & wanted.keys():
        try:
            found[name] = as_data(name, state[name])
        except ValueError as error:
            misfits.append(f"{name!r}: {error}")
            continue
        leaf, data = wanted[name], found[name]
        problem = misfit(leaf, data, override_encoding=override_encoding, align=align)
        misfits += [problem] if problem else []
    unused = [f"{name!r} is not used" for name in state if name not in wanted]
    missing = missing_names(wanted, state)
    raise_all(missing if strict else [], unused if strict else [], sorted(misfits))
    return found


def missing_names(wanted: Iterable[str], state: Mapping[str, object]) -> list[str]:
    """One line for each wanted name that is not there, with the nearest that nothing wants."""
    names = set(wanted)
    absent, unused = sorted(names - set(state)), sorted(set(state) - names)
    return [f"{name!r} is missing{_did_you_mean(name, unused)}" for name in absent]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def misfit(leaf: Leaf, data: WeightData, *, override_encoding: bool, align: int | None) -> str:
    """What is wrong with ``data`` as the value of ``leaf``; empty if nothing is."""
    tensor = leaf.tensor
    found = (data.dtype.value, list(data.shape))
    declared = (tensor.dtype.value, [dim.value for dim in tensor.shape])
    encoding = tensor.quantization_encoding if isinstance(tensor, Weight) else None
    if found != declared:
        return f"{leaf.name!r} is {found[0]}{found[1]}, declared {declared[0]}{declared[1]}"
    if encoding is not data.quantization_encoding and not override_encoding:
        found_as, declared_as = _named(data.quantization_encoding), _named(encoding)
        return f"{leaf.name!r} is encoded {found_as}, declared {declared_as}"
    needed = align or getattr(tensor, "align", None) or data.data.dtype.itemsize
    if data.data.ctypes.data % needed:
        return (
            f"{leaf.name!r} is not aligned to {needed} bytes; pass weight_alignment=1 to allow it"
        )
    return ""


def _named(encoding: QuantizationEncoding | None) -> str:
    return encoding.name if encoding else "as plain elements"


def raise_all(missing: list[str], unexpected: list[str], misfits: list[str]) -> None:
    """Raise one error that lists every problem, of the class of the first kind that occurs.

    Raises:
        MissingWeight: If something is missing.
        UnexpectedWeight: Else, if a name is not used.
        MisshapenWeight: Else, if a value does not fit.
    """
    kinds: list[tuple[list[str], Callable[..., ModelMismatch]]] = [
        (missing, MissingWeight),
        (unexpected, UnexpectedWeight),
        (misfits, MisshapenWeight),
    ]
    problems = missing + unexpected + misfits
    for found, kind in kinds:
        if found:
            raise kind("the state does not fit the module", problems=problems)
