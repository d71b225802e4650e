"""The weights of a user's module: found in a checkpoint by name, and held against its headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, ModelMismatch, UsageError
from maxtool.graph import Tensor, TensorType, Weight
from maxtool.nn import state, tree
from maxtool.nn.base import ModuleBase
from maxtool.nn.tree import Leaf
from maxtool.weights import Checkpoint, TensorInfo, WeightData
from maxtool.weights.weight_elements import equal_bits

PLAIN_FLOATS = frozenset({DType.float16, DType.bfloat16, DType.float32, DType.float64})
MAX_PREFIXES = 100
"""Prefixes that are tried where weights are missing."""


@dataclass(frozen=True)
class ModuleWeights:
    """Tensors of a checkpoint as a module's weights: their names, by the weight's full name."""

    checkpoint: Checkpoint
    names: Mapping[str, str]

    def read(self, name: str) -> WeightData:
        """The tensor that is the value of a weight, as it is stored."""
        return self.checkpoint.read(self.names[name])


def match(
    module: ModuleBase[..., Any],
    checkpoint: Checkpoint,
    *,
    prefix: str = "",
    dtype: DType | None = None,
) -> ModuleWeights:
    """Find a tensor for every weight of a module, from headers alone.

    A tensor under several names in the module needs one of them in the checkpoint; where there are
    more, they are read and must be equal. Weights of symbolic sizes get those of their tensors.

    Args:
        module: The module; weights that are to have another type, or get their sizes, are changed.
        checkpoint: The checkpoint.
        prefix: What the names of the module's tensors begin with there, in whole segments.
        dtype: The type of the matrices. Without it, every type must be the declared one; with it,
            floats of any type, block-encoded ones too, become the type of their weight.
    """
    names = _names_below(checkpoint, prefix.removesuffix("."))
    if dtype is not None:
        _declare(module, dtype)
    first, others = _by_tensor(tree.leaves(module), names)
    infos = {name: checkpoint.tensors[names[name]] for name in names if name not in others}
    headers = {name: _header(name, infos[name]) for name in infos}
    if dtype is not None:
        headers |= {
            leaf.name: _cast(headers[leaf.name], leaf) for leaf in first if leaf.name in headers
        }
    try:
        state.fitting(first, headers, align=1)
    except ModelMismatch as error:
        hint = _where_below(checkpoint, first, names)
        if hint is None and dtype is None and any(_converts(headers, leaf) for leaf in first):
            hint = "--dtype TYPE converts floats, and decodes quantized ones"
        what = f"the tensors do not fit the module {type(module).__name__}"
        file, problems = checkpoint.path, error.problems
        raise type(error)(what, file=file, problems=problems, hint=hint) from None
    if unequal := list(_unequal(checkpoint, names, others)):
        what = "tensors that are one weight of the module differ"
        raise MisshapenWeight(what, file=checkpoint.path, problems=unequal)
    for leaf in first:
        if isinstance(leaf.tensor, Weight) and not leaf.tensor.shape.is_static:
            leaf.tensor.shape = infos[leaf.name].shape
    chosen = {id(leaf.tensor): names[leaf.name] for leaf in first}
    return ModuleWeights(
        checkpoint, {leaf.name: chosen[id(leaf.tensor)] for leaf in tree.leaves(module)}
    )


def _names_below(checkpoint: Checkpoint, prefix: str) -> dict[str, str]:
    """The tensors below a prefix, by the rest of their names."""
    view = checkpoint.weights[prefix] if prefix else checkpoint.weights
    skipped = len(prefix) + 1 if prefix else 0
    names = {name[skipped:]: name for name, _ in view.items() if name != prefix}
    if prefix and not names:
        known = sorted({name.split(".")[0] for name in checkpoint.tensors})
        hint = f"names begin with {', '.join(known[:5])}"
        what = f"no tensor's name begins with --prefix {prefix!r:.80}"
        raise UsageError(what, file=checkpoint.path, hint=hint)
    return names


def _by_tensor(
    leaves: Iterable[Leaf], names: Mapping[str, str]
) -> tuple[list[Leaf], dict[str, str]]:
    """One leaf for each tensor, which the checkpoint names if any; and the other names of tensors.

    The latter are those in the checkpoint, with the name of the leaf that stands for them.
    """
    alike: dict[int, list[Leaf]] = {}
    for leaf in leaves:
        alike.setdefault(id(leaf.tensor), []).append(leaf)
    first: list[Leaf] = []
    others: dict[str, str] = {}
    for group in alike.values():
        chosen = next((leaf for leaf in group if leaf.name in names), group[0])
        first.append(chosen)
        others |= {leaf.name: chosen.name for leaf in group if leaf is not chosen}
    return first, {name: meant for name, meant in others.items() if name in names}


def _declare(module: ModuleBase[..., Any], dtype: DType) -> None:
    """Declare every matrix of floats as of that type, and as plain elements."""
    replaced: dict[int, Tensor] = {}
    for leaf in list(tree.leaves(module)):
        tensor = leaf.tensor
        if tensor.rank < 2 or tensor.dtype not in PLAIN_FLOATS:
            continue
        if isinstance(tensor, Weight):
            tensor.dtype, tensor.quantization_encoding = dtype, None
        elif tensor.dtype is not dtype:
            tensor_type = TensorType(dtype, tensor.shape, tensor.device)
            stand_in = Tensor.holding(tensor_type, _nothing(dtype, tensor.shape.static()))
            leaf.replace(replaced.setdefault(id(tensor), stand_in))


def _nothing(dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Zeros that take no memory, where only type and shape are looked at."""
    return np.broadcast_to(np.zeros((), dtype.to_numpy()), shape)


def _header(name: str, info: TensorInfo) -> WeightData:
    return WeightData(_nothing(info.dtype, info.shape), name, info.dtype, info.shape, info.encoding)


def _cast(header: WeightData, leaf: Leaf) -> WeightData:
    """The header of a tensor as it will be read: floats in the type of their weight."""
    wanted = leaf.tensor.dtype
    if header.dtype not in PLAIN_FLOATS or wanted not in PLAIN_FLOATS:
        return header
    return WeightData(_nothing(wanted, header.shape), header.name, wanted, header.shape)


def _converts(headers: Mapping[str, WeightData], leaf: Leaf) -> bool:
    """Return whether a tensor would be converted if a type were asked for."""
    if leaf.name not in headers:
        return False
    header = headers[leaf.name]
    cast = _cast(header, leaf)
    encodings = (cast.quantization_encoding, header.quantization_encoding)
    return cast.dtype is not header.dtype or encodings[0] is not encodings[1]


def _where_below(
    checkpoint: Checkpoint, leaves: Sequence[Leaf], names: Mapping[str, str]
) -> str | None:
    """A hint at the prefix below which all weights are, if some are missing and there is one."""
    missing = next((leaf.name for leaf in leaves if leaf.name not in names), None)
    if missing is None:
        return None
    ending = f".{missing}"
    prefixes = [name.removesuffix(ending) for name in checkpoint.tensors if name.endswith(ending)]
    fitting = [
        prefix
        for prefix in prefixes[:MAX_PREFIXES]
        if all(f"{prefix}.{leaf.name}" in checkpoint.tensors for leaf in leaves)
    ]
    return f"try --prefix {' or --prefix '.join(fitting[:3])}" if fitting else None


def _unequal(
    checkpoint: Checkpoint, names: Mapping[str, str], others: Mapping[str, str]
) -> Iterator[str]:
    for name, meant in others.items():
        first, other = checkpoint.tensors[names[name]], checkpoint.tensors[names[meant]]
        same = (first.type_name, first.shape) == (other.type_name, other.shape)
        if not same or not equal_bits(checkpoint.stored(first.name), checkpoint.stored(other.name)):
            yield f"{first.name!r} and {other.name!r}"
