"""Loading a state: every problem found before the first tensor changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, cast
from weakref import ref

import numpy as np

from maxtool.errors import MisshapenWeight, MissingWeight, UnexpectedWeight
from maxtool.graph import Graph, Shape, Tensor, Weight
from maxtool.graph.weight import Family
from maxtool.graph.weights import Weights
from maxtool.nn.tree import Leaf, Node, leaves
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.weight_data import WeightData

Array: TypeAlias = np.ndarray[Any, Any]
Value: TypeAlias = "Array | Tensor | WeightData | Weights"


@dataclass(frozen=True, slots=True)
class StateValue:
    """A value as a state holds it (of a ``WeightData``, its array), and what it means."""

    value: object
    data: WeightData


def as_data(name: str, value: object) -> WeightData:
    """A state's value with its name, dtype, shape and encoding."""
    if _is_weights(value):
        value = cast("Weights", value).data()
    if isinstance(value, WeightData):
        return value if isinstance(value.data, np.ndarray) else _of_array(value)
    if isinstance(value, Tensor):
        value = value.to_numpy()
    elif not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = _from_dlpack(value)
    if not isinstance(value, np.ndarray):
        type_name = type(value).__name__
        raise ValueError(
            f"a {type_name}, not a NumPy array, a Tensor, a WeightData or anything with __dlpack__"
        )
    return WeightData.from_numpy(value, name)


def _is_weights(value: Any) -> bool:  # noqa: ANN401 - anything
    """Return whether it is one of the weights of a checkpoint, of any class of such."""
    known = isinstance(value, WeightData | Tensor | np.ndarray) or hasattr(value, "__dlpack__")
    return not known and callable(getattr(value, "data", None))


def _of_array(value: WeightData) -> WeightData:
    """The weight with a NumPy array, where another class of weights gave it an array of its own."""
    data = as_data(value.name, value.data).data
    shape = tuple(int(size) for size in value.shape)
    return WeightData(data, value.name, value.dtype, shape, value.quantization_encoding)


def _from_dlpack(value: Any) -> Array:  # noqa: ANN401 - a protocol
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:
        raise ValueError(f"NumPy cannot read it by __dlpack__ ({error})") from None


def weights_of(root: Node) -> dict[str, Weight]:
    """Every weight of a tree by full name."""
    return {leaf.name: leaf.tensor for leaf in leaves(root) if isinstance(leaf.tensor, Weight)}


def name_weights(root: Node) -> None:
    """Name every weight by its full path, so that a graph holds each under its own name."""
    family = _family_of(root)
    for name, weight in weights_of(root).items():
        weight.name, weight.family = name, family


def _family_of(root: Node) -> Family:
    """The weights of a tree for as long as there is the tree, which they do not keep."""
    reference = ref(root)

    def weights() -> Mapping[str, Weight]:
        module = reference()
        return {} if module is None else weights_of(module)

    return weights


def load(
    root: Node,
    state: Mapping[str, Value],
    *,
    strict: bool = True,
    override_encoding: bool = False,
    align: int | None = None,
) -> None:
    """Load ``state`` into the tensors of a tree; arguments and errors are those of `fitting`."""
    tensors = {leaf.name: leaf for leaf in leaves(root)}
    options: dict[str, Any] = {"strict": strict, "override_encoding": override_encoding}
    values = fitting(tensors.values(), state, **options, align=align)
    name_weights(root)
    for name, value in values.items():
        assign(tensors[name], value, align)


def fitting(
    tensors: Iterable[Leaf],
    state: Mapping[str, Value],
    *,
    strict: bool = True,
    override_encoding: bool = False,
    align: int | None = None,
) -> dict[str, StateValue]:
    """The values of ``state`` for the leaves it names, every one of which fits.

    Args:
        tensors: The tensors to load.
        state: Values by full name.
        strict: Whether every name must be in both; else those in only one are passed over.
        override_encoding: Whether a value may be encoded in another way than declared.
        align: The alignment in bytes to ask of every value instead of the declared one.
    """
    wanted = {leaf.name: leaf for leaf in tensors}
    values: dict[str, StateValue] = {}
    misfits = []
    for name in state.keys() & wanted.keys():
        try:
            values[name] = _given(name, state[name])
        except ValueError as error:
            misfits.append(f"{name!r}: {error}")
            continue
        leaf, data = wanted[name], values[name].data
        problem = misfit(leaf, data, override_encoding=override_encoding, align=align)
        misfits += [problem] if problem else []
    pairs = [(wanted[name], values[name].data) for name in wanted if name in values]
    misfits += [] if misfits else [*_sizes_that_differ(pairs), *_values_that_differ(pairs)]
    unused = [f"{name!r} is not used" for name in state if name not in wanted]
    missing = missing_names(wanted, state)
    raise_all(missing if strict else [], unused if strict else [], sorted(misfits))
    return values


def _given(name: str, value: Value) -> StateValue:
    data = as_data(name, value)
    described = isinstance(value, WeightData) or _is_weights(value)
    return StateValue(data.data if described else value, data)


def _sizes_that_differ(pairs: Iterable[tuple[Leaf, WeightData]]) -> Iterator[str]:
    """A line for each symbolic dimension that has another size than in a weight before."""
    known: dict[str, tuple[int, str]] = {}
    for leaf, data in pairs:
        for dim, size in zip(_declared(leaf.tensor), data.shape, strict=True):
            if isinstance(dim.value, str):
                first, where = known.setdefault(dim.value, (size, leaf.name))
                if first != size:
                    yield f"{leaf.name!r}: {dim} is {size}, and {first} in {where!r}"


def _values_that_differ(pairs: Iterable[tuple[Leaf, WeightData]]) -> Iterator[str]:
    """A line for each two names of one tensor whose values are not the same."""
    known: dict[object, tuple[str, Array]] = {}
    for leaf, data in pairs:
        weight = isinstance(leaf.tensor, Weight)
        key = id(leaf.tensor) if weight else (id(leaf.owner), leaf.attribute, leaf.keys)
        name, first = known.setdefault(key, (leaf.name, data.data))
        if first is not data.data and first.tobytes() != data.data.tobytes():
            yield f"{leaf.name!r} is the tensor {name!r} too, and their values differ"


def missing_names(wanted: Iterable[str], state: Mapping[str, object]) -> list[str]:
    """One line for each wanted name that is not there, with the nearest that nothing wants."""
    names = set(wanted)
    absent, unused = sorted(names - set(state)), sorted(set(state) - names)
    return [f"{name!r} is missing{_did_you_mean(name, unused)}" for name in absent]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def misfit(leaf: Leaf, data: WeightData, *, override_encoding: bool, align: int | None) -> str:
    """Return the problem with ``data`` as the value of ``leaf``; empty if there is none."""
    tensor, declared = leaf.tensor, _declared(leaf.tensor)
    encoding = tensor.quantization_encoding if isinstance(tensor, Weight) else None
    if data.dtype is not tensor.dtype or not _fits(declared, data.shape):
        actual = f"{data.dtype.value}{list(data.shape)}"
        return f"{leaf.name!r} is {actual}, declared {tensor.dtype.value}{declared}"
    if encoding is not data.quantization_encoding and not override_encoding:
        found_as, declared_as = _named(data.quantization_encoding), _named(encoding)
        return f"{leaf.name!r} is encoded {found_as}, declared {declared_as}"
    needed = align or getattr(tensor, "align", None) or data.data.dtype.itemsize
    if data.data.ctypes.data % needed:
        return (
            f"{leaf.name!r} is not aligned to {needed} bytes; pass weight_alignment=1 to allow it"
        )
    return ""


def _declared(tensor: Tensor) -> Shape:
    return tensor.declared_shape if isinstance(tensor, Weight) else tensor.shape


def _fits(declared: Shape, actual: tuple[int, ...]) -> bool:
    """Return whether sizes are those declared; a symbolic one is any."""
    sizes = zip(declared, actual, strict=False)
    return len(declared) == len(actual) and all(
        dim == size or not dim.is_static for dim, size in sizes
    )


def _named(encoding: QuantizationEncoding | None) -> str:
    return encoding.name if encoding else "as plain elements"


def raise_all(missing: list[str], unexpected: list[str], misfits: list[str]) -> None:
    """Raise one error that lists every problem, of the class of the first kind that occurs."""
    problems = missing + unexpected + misfits
    if problems:
        first = MissingWeight if missing else UnexpectedWeight if unexpected else MisshapenWeight
        raise first("the state does not fit the module", problems=problems)


def assign(leaf: Leaf, state_value: StateValue, align: int | None) -> None:
    """Assign a value that fits to a leaf; a tensor that is not a weight stays on its device."""
    tensor, data = leaf.tensor, state_value.data
    if not isinstance(tensor, Weight):
        leaf.replace(Tensor(data.data, device=tensor.device))
        return
    tensor.bind(data.data, state_value.value, data.shape)
    tensor.quantization_encoding = data.quantization_encoding
    tensor.align = align or tensor.align


def initialize(weights: Mapping[str, Weight]) -> None:
    """Fill weights with zeros; those of sizes that are not known are an error."""
    unknown = [f"{name!r}: {one.shape}" for name, one in weights.items() if not one.shape.is_static]
    if unknown:
        raise MissingWeight("weights of symbolic sizes have no data", problems=unknown)
    for weight in weights.values():
        zeros = _zeros(weight)
        weight.bind(zeros, Tensor(zeros))


def require_sizes(graph: Graph) -> None:
    """Refuse a graph with weights whose sizes were not known when it was traced."""
    values = graph.weight_values.items()
    unknown = [f"{name!r}: {value.shape}" for name, value in values if not value.shape.is_static]
    if unknown:
        what = f"graph {graph.name!r} was traced with weights of symbolic sizes"
        raise MissingWeight(what, problems=unknown, hint="load a state first")


def _zeros(weight: Weight) -> Array:
    """Zeros, as bytes of blocks where the weight is encoded: a block of zeros is all zero."""
    shape, encoding = weight.shape.static(), weight.quantization_encoding
    if encoding is None:
        return np.zeros(shape, weight.dtype.to_numpy())
    return np.zeros((*shape[:-1], encoding.row_bytes(shape[-1])), np.uint8)


def value_of(tensor: Tensor) -> Any:  # noqa: ANN401 - whatever was loaded
    """A tensor's value as it was given."""
    return tensor.value if isinstance(tensor, Weight) else tensor.to_numpy()
