"""Operations about the graph rather than about numbers: constants, calls, transfers, printing."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from maxtool.casting import cast
from maxtool.dtype import DType
from maxtool.graph import executor
from maxtool.graph.device import DeviceRef
from maxtool.graph.graph import Graph
from maxtool.graph.ops.operation_table import apply, is_traced, rule
from maxtool.graph.tensor import Tensor, TensorLike
from maxtool.graph.type import TensorType

# Elements from which on a printed tensor is shortened.
SHOWN = 1000


@rule("transfer_to")
def _infer_transfer(tensor_type: TensorType, device: DeviceRef) -> tuple[TensorType, ...]:
    return (TensorType(tensor_type.dtype, tensor_type.shape, device),)


@rule("print")
def _infer_print(_kind: TensorType, label: str) -> tuple[TensorType, ...]:  # noqa: ARG001
    return ()


def call(graph: Graph, *args: Tensor, prefix: str = "") -> list[Tensor]:
    """Call a subgraph from the graph being traced.

    Args:
        graph: What :meth:`maxtool.nn.Module.build_subgraph` returned.
        args: One operand for each input.
        prefix: Whose weights it reads: put before the name of each placeholder weight.

    Raises:
        LookupError: If no graph is being traced.
        ValueError: If the operands do not fit, or the subgraph has weights and there is no prefix.
    """
    current = Graph.current()
    if current is None:
        raise LookupError("a subgraph is called while a graph is traced")
    return list(current.call(graph, *args, prefix=prefix))


def constant(
    value: TensorLike, dtype: DType | None = None, device: DeviceRef | None = None
) -> Tensor:
    """A tensor of values known now, which are copied.

    Args:
        value: A number, a (nested) sequence of numbers, an array or a tensor that holds data.
        dtype: The element type; that of the value when absent, float32 for Python floats.
        device: Where it is; the host when absent.

    Returns:
        A value of the graph being traced, or a tensor where there is none.

    Raises:
        TypeError: If the value is traced.
        ValueError: If the values do not fit the type: floats as integers, or out of its range.
    """
    array = value.to_numpy() if isinstance(value, Tensor) else value
    natural = Tensor.natural(np.array(array) if isinstance(array, np.ndarray) else array)
    exact = natural.to_numpy() if dtype is None else _as_type(array, natural, dtype)
    tensor = Tensor(exact, device=device)
    graph = Graph.current()
    return tensor if graph is None else graph.value(tensor)


def transfer_to(x: TensorLike, device: DeviceRef) -> Tensor:
    """The elements of ``x`` on another device; ``x`` itself if it is there already.

    The devices ``CPU(0)``, ``CPU(1)``, ... share the host's memory: nothing is copied between them.
    To and from an accelerator elements are copied, when the graph runs or, of data, at once.

    Raises:
        MissingDevice: If data that is here would go to a device that is not (also a ValueError).
    """
    tensor = x if isinstance(x, Tensor) else Tensor(x)
    if tensor.device == device:
        return tensor
    if is_traced(tensor):
        return apply("transfer_to", tensor, device=device)[0]
    if device.is_cpu():
        return Tensor(tensor.to_numpy(), device=device)
    target_type = TensorType(tensor.dtype, tensor.shape, device)
    return Tensor.on_accelerator(target_type, executor.upload(tensor, device))


def print(x: TensorLike, label: str = "debug_tensor") -> None:  # noqa: A001 - the operation's name
    """Print a tensor, its type and shape on the standard output, after a label.

    A traced value is printed each time the graph runs, in the order of the operations around it.
    An artifact of ``maxtool compile`` prints nothing: compiling one is refused.
    """
    tensor = x if isinstance(x, Tensor) else Tensor(x)
    if is_traced(tensor):
        apply("print", tensor, label=label)
    else:
        show(label, tensor.to_numpy())


def show(label: str, array: np.ndarray[Any, Any]) -> None:
    """Write an array as :func:`print` does."""
    dtype, shape = DType.from_numpy(array.dtype), list(array.shape)
    values = np.array2string(array, separator=", ", threshold=SHOWN)
    sys.stdout.write(f"{label} = tensor({values}, dtype={dtype.value}, shape={shape})\n")


def _as_type(
    value: Any,  # noqa: ANN401 - what an array is made of
    natural: Tensor,
    dtype: DType,
) -> np.ndarray[Any, Any]:
    if natural.dtype.is_float() and not dtype.is_float():
        raise ValueError(f"constant: {natural.dtype.value} would be cut to {dtype.value}")
    converted, changed = cast(np.asarray(value), dtype)
    if changed:
        raise ValueError(f"constant: {changed} of {converted.size} values do not fit {dtype.value}")
    return converted
