"""The table of operations, and how one is applied: traced into a graph, or run at once.

An operation is a name, a rule that infers the result types, and nothing else: what it computes is
said once, by the compiler's lowering of that name, for traced and for eager use alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import executor
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import Dim, Shape
from maxtool.graph.executor import Run
from maxtool.graph.graph import Graph
from maxtool.graph.ops.operation_cache import REPEATING, Ready, key_of
from maxtool.graph.ops.promotion import common
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

Infer: TypeAlias = Callable[..., tuple[TensorType, ...]]
Rule = TypeVar("Rule", bound=Infer)


@dataclass(frozen=True, slots=True)
class Op:
    """An operation.

    Attributes:
        name: Its name in graphs, in the lowering table and in messages.
        infer: From operand types and attributes to result types; ValueError if they do not fit.
        writes: Index of the operand that the first result overwrites in place, if any.
        numbers: What Python numbers become at an operand; elsewhere, the dtype of the first tensor
            among the operands.
        alike: Which operands are computed in one type, by the rules of :mod:`.promotion`. Python
            numbers among them become what the tensors among them are.
    """

    name: str
    infer: Infer
    writes: int | None = None
    numbers: Mapping[int, DType] = field(default_factory=dict)
    alike: slice | None = None


OPS: dict[str, Op] = {}


def rule(*names: str, **options: Any) -> Callable[[Rule], Rule]:  # noqa: ANN401 - as those of Op
    """Define operations whose results a function infers, the function that this decorates."""

    def define(infer: Rule) -> Rule:
        OPS.update({name: Op(name, infer, **options) for name in names})
        return infer

    return define


def ruled_by(*rules: Infer) -> tuple[str, ...]:
    """The names of the operations whose results these rules infer."""
    return tuple(name for name, op in OPS.items() if op.infer in rules)


def apply(name: str, *operands: TensorLike, **attributes: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    """Apply an operation: trace it when an operand is symbolic, run it when all are concrete.

    Raises:
        ValueError: If the operands do not fit; the message names the operation and their types.
    """
    key = key_of(name, operands, attributes)
    if key is not None and (ready := REPEATING.get(key)) is not None:
        return ready(operands)
    op = OPS[name]
    given = _as_tensors(op, operands)
    try:
        types = _promoted(op, [tensor.type for tensor in given])
        _require_one_device(types)
        results = op.infer(*types, **attributes)
    except ValueError as error:
        listed = ", ".join(str(tensor.type) for tensor in given)
        raise ValueError(f"{name}({listed}): {error}") from None
    tensors = [_cast(tensor, kind.dtype) for tensor, kind in zip(given, types, strict=True)]
    graph = Graph.current()
    known = bool(tensors) and all(operand_type.shape.is_static for operand_type in results)
    if graph is not None and (not known or any(graph.knows(tensor) for tensor in tensors)):
        return graph.add_node(name, tensors, attributes, results, op.writes)
    if any(tensor.is_traced for tensor in tensors):
        raise ValueError(f"{name}: a traced value can only be used while its graph is traced")
    if not known:
        raise ValueError(f"{name}: a size that has only a name is known while a graph is traced")
    run = executor.prepared(name, tensors, attributes, results)
    if key is not None:
        REPEATING.keep(key, _repeated(run, operands, tensors))
    return run(tensors)


def _repeated(run: Run, operands: Sequence[TensorLike], tensors: Sequence[Tensor]) -> Ready:
    """The function that runs an operation on such operands again: numbers as tensors, cast."""
    if all(left is right for left, right in zip(operands, tensors, strict=True)):
        return run

    def ready(given: Sequence[Any]) -> tuple[Tensor, ...]:
        return run(
            [
                _cast(one, two.dtype) if isinstance(one, Tensor) else two
                for one, two in zip(given, tensors, strict=True)
            ]
        )

    return ready


def as_tensor(operand: TensorLike) -> Tensor:
    """A tensor as it is, anything else as one: Python's whole numbers in int64, others float32."""
    return operand if isinstance(operand, Tensor) else Tensor.natural(operand)


def is_traced(tensor: Tensor) -> bool:
    """Return whether an operation on it is recorded in the graph being traced."""
    graph = Graph.current()
    return tensor.is_traced or (graph is not None and graph.knows(tensor))


def _as_tensors(op: Op, operands: Sequence[TensorLike]) -> list[Tensor]:
    first = next((operand for operand in operands if isinstance(operand, Tensor)), None)
    device = None if first is None else first.device
    beside = {**_beside(op, operands), **op.numbers}
    return [
        as_operand(op.name, operand, beside.get(i), device) for i, operand in enumerate(operands)
    ]


def as_operand(
    name: str, operand: TensorLike, dtype: DType | None, device: DeviceRef | None
) -> Tensor:
    """A tensor as it is; Python numbers as one of a type, if they are such; arrays keep theirs."""
    if isinstance(operand, Tensor):
        return operand
    if isinstance(operand, Dim):
        return as_number(operand, dtype, device)
    if dtype is None or isinstance(operand, np.ndarray | np.generic):
        return Tensor.natural(operand, device)
    if not _fits(np.asarray(operand), dtype):
        raise ValueError(f"{name}: {operand} beside {dtype.value}; cast the tensor first")
    return Tensor(operand, dtype, device)


def as_number(dim: Dim, dtype: DType | None, device: DeviceRef | None = None) -> Tensor:
    """A dimension as a number of a type on a device, computed where it has only a name."""
    if dim.is_static:
        return Tensor(int(dim), dtype or DType.int64, device)
    (sizes,) = apply("shape_to_tensor", shape=Shape([dim]), device=device)
    (number,) = apply("reshape", sizes, shape=Shape([]))
    return number if dtype is None else _cast(number, dtype)


def _beside(op: Op, operands: Sequence[TensorLike]) -> dict[int, DType]:
    """Return the type of each Python number among the operands: that of the tensors next to it.

    Of types that have nothing in common the first: what is wrong with them is said later.
    """
    places = range(len(operands))[op.alike or slice(None)]
    present = [dtype for i in places if (dtype := _dtype_of(operands[i])) is not None]
    if not present:
        return {}
    try:
        return dict.fromkeys(places, common(present))
    except ValueError:
        return dict.fromkeys(places, present[0])


def _dtype_of(operand: TensorLike) -> DType | None:
    if isinstance(operand, Tensor):
        return operand.dtype
    if isinstance(operand, np.ndarray | np.generic):
        return DType.from_numpy(operand.dtype)
    return None


def _promoted(op: Op, types: list[TensorType]) -> list[TensorType]:
    """The types as the operation takes them."""
    alike = range(len(types))[op.alike or slice(0)]
    if len({types[i].dtype for i in alike}) < 2:
        return types
    dtype = common(types[i].dtype for i in alike)
    return [
        TensorType(dtype, operand_type.shape, operand_type.device) if i in alike else operand_type
        for i, operand_type in enumerate(types)
    ]


def _cast(tensor: Tensor, dtype: DType) -> Tensor:
    return tensor if tensor.dtype is dtype else apply("cast", tensor, dtype=dtype)[0]


def _require_one_device(types: Sequence[TensorType]) -> None:
    if len(devices := {type_.device: None for type_ in types}) > 1:
        names = " and ".join(device.name for device in devices)
        raise ValueError(f"operands on {names}; move them to one with transfer_to")


def _fits(numbers: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Return whether a type has such numbers: integers in range, or floats that stay finite."""
    if dtype is DType.bool:
        return bool(np.all((numbers == 0) | (numbers == 1)))
    if dtype.is_integral():
        limits = np.iinfo(dtype.to_numpy())
        in_range = np.all((numbers >= limits.min) & (numbers <= limits.max))
        return numbers.dtype.kind in "biu" and bool(in_range)
    with np.errstate(over="ignore"):
        rounded = numbers.astype(dtype.to_numpy()).astype(np.float64)
    return bool(np.all(np.isfinite(rounded) | ~np.isfinite(numbers.astype(np.float64))))
