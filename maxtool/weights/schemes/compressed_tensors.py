"""compressed-tensors, as LLM Compressor stores it: whole numbers with scales, packed or as int8.

``pack-quantized`` keeps numbers of 1 to 8 bits, each plus half of their range, along the inputs of
``weight_packed``, and zeros along the outputs of ``weight_zero_point``; ``int-quantized`` and
``naive-quantized`` keep int8. A scale is one for all, for each row, or for each group of a row.
What it says of 8-bit floats is read by :mod:`maxtool.weights.scaled_float8`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.schemes import packed_integers as packing
from maxtool.weights.schemes import scaled_rows
from maxtool.weights.schemes.scheme import (
    Arrays,
    Layout,
    Meaning,
    Misfit,
    Parts,
    Unsupported,
    expect,
    matrix,
)
from maxtool.weights.schemes.settings import FLAG, OFF, Count, OneOf, Rule, anything, check
from maxtool.weights.schemes.weight_groups import WeightGroup, need_zeros

WEIGHT, PACKED, SHAPE = ".weight", ".weight_packed", ".weight_shape"
SCALE, ZERO, G_IDX = ".weight_scale", ".weight_zero_point", ".weight_g_idx"
ACTIVATIONS = (".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point")
INT8, INT32 = frozenset({DType.int8}), frozenset({DType.int32})
INDICES = frozenset({DType.int32, DType.int64})
LARGEST = 1 << 31
BYTE = 8
FORMATS = ("pack-quantized", "int-quantized", "naive-quantized")

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("compressed-tensors"),
    "quantization_status": OneOf("compressed"),
    **anything("config_groups", "global_compression_ratio", "ignore", "version", "run_compressed"),
}
GROUP_RULES = anything("targets", "weights", "input_activations", "output_activations")
WEIGHT_RULES: Mapping[str, Rule] = {
    "num_bits": OneOf(*range(1, 9)),
    "type": OneOf("int"),
    "symmetric": FLAG,
    "group_size": Count((-1,)),
    "strategy": OneOf("tensor", "channel", "group"),
    "dynamic": OFF,
    "actorder": OneOf("static", "weight", "group", "dynamic", True, False),
    **anything("observer", "observer_kwargs", "scale_dtype", "zp_dtype"),
}
SPARSITY_RULES: Mapping[str, Rule] = {
    "format": OneOf("dense"),
    **anything("global_sparsity", "ignore", "registry_requires_subclass"),
    **anything("sparsity_structure", "targets"),
}
TABLES = ("sparsity_config", "transform_config")


def layouts(config: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of whole numbers; ``Unsupported`` says what is."""
    said = checked_groups(config, (*FORMATS, "mixed-precision"), WEIGHT_RULES)
    groups = tuple(map(WeightGroup.of, said))
    optional = (ZERO, G_IDX, *ACTIVATIONS)
    packed, plain = partial(_packed, groups), partial(_plain, groups)
    return (
        Layout(PACKED, WEIGHT, PACKED, packed, (SCALE, SHAPE), optional, (SHAPE,)),
        Layout(SCALE, WEIGHT, WEIGHT, plain, optional=optional),
    )


def checked_groups(
    config: Mapping[str, Any], formats: tuple[str, ...], rules: Mapping[str, Rule]
) -> list[Mapping[str, Any]]:
    """Return the groups of layers, all their keys checked.

    Raises:
        Unsupported: If a key is unknown or has a value that is not supported.
    """
    form: Mapping[str, Rule] = {"format": OneOf(*formats)}
    rest = {key: value for key, value in config.items() if key not in TABLES}
    check(rest, {**RULES, **form}, needed=("config_groups",))
    check(_table(config, "sparsity_config"), SPARSITY_RULES, where="sparsity_config.")
    if _table(config, "transform_config"):
        raise Unsupported("transform_config is not supported: weights are rotated at run time")
    found: list[Mapping[str, Any]] = []
    for group in _table(config, "config_groups").values():
        if not isinstance(group, dict) or not isinstance(group.get("weights"), dict):
            raise Unsupported("a group of config_groups has no weights")
        check(group, {**GROUP_RULES, **form}, where="config_groups.")
        check(group["weights"], rules, needed=("num_bits",), where="config_groups.weights.")
        found.append(group)
    return found


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = config.get(key) or {}
    if not isinstance(table, dict):
        raise Unsupported(f"{key} is not a table")
    return table


# --- packed --------------------------------------------------------------------------------------


def _packed(groups: Sequence[WeightGroup], parts: Parts, early: Arrays) -> Meaning:
    allowed = {group.bits for group in groups}
    _, words = matrix(parts[PACKED])
    expect(parts[PACKED], INT32)
    shape = _stated(early, parts)
    fitting = [bits for bits in sorted(allowed) if packing.words_of(shape[1], bits) == words]
    if len(fitting) != 1:
        stated = ", ".join(map(str, sorted(allowed)))
        what = f"{parts[PACKED].name} has {words} words to a row of {shape[1]}"
        raise Misfit(f"{what}, which fits {len(fitting) or 'none'} of {stated} bits")
    (bits,) = fitting
    run = _run(parts, shape)
    _check_zero(parts, PACKED, [group for group in groups if group.bits == bits])
    if ZERO in parts:
        zeros = packing.words_of(shape[0], bits), shape[1] // run
        expect(parts[ZERO], INT32, zeros)
    dtype = parts[SCALE].dtype
    return Meaning(f"INT{bits}", shape, dtype, partial(_decode_packed, bits, run))


def _stated(early: Arrays, parts: Parts) -> tuple[int, int]:
    """Return the shape that a tensor of its own says."""
    expect(parts[SHAPE], INDICES)
    sizes = [int(size) for size in early[SHAPE].reshape(-1)]
    rows = parts[PACKED].shape[0]
    if len(sizes) != 2 or sizes[0] != rows or not 0 < sizes[1] < LARGEST:
        raise Misfit(f"{parts[SHAPE].name} says {sizes}, and there are {rows} rows")
    return sizes[0], sizes[1]


def _run(parts: Parts, shape: tuple[int, int]) -> int:
    """Return how many columns share a scale, and check the tensors that go by groups."""
    if G_IDX in parts:
        expect(parts[G_IDX], INDICES, shape[1:])
    return scaled_rows.run_of(parts[SCALE], shape)


def _check_zero(parts: Parts, ending: str, groups: Sequence[WeightGroup]) -> None:
    module = parts[ending].name.removesuffix(ending)
    if ZERO not in parts and need_zeros(groups, module):
        raise Misfit(f"lacks {ZERO[1:]}, and the configuration has asymmetric weights like it")


def _decode_packed(bits: int, run: int, arrays: Arrays, out: NDArray[Any]) -> None:
    rows, columns = out.shape
    zeros: NDArray[Any] = np.full((1, 1), 1 << (bits - 1), np.float32)
    if ZERO in arrays:
        zeros = packing.unpack_last(arrays[ZERO].T, bits, rows).T.astype(np.float32)

    def numbers(part: slice) -> NDArray[Any]:
        return packing.unpack_last(arrays[PACKED][part], bits, columns)

    scaled_rows.decode(numbers, zeros, arrays[SCALE], _owners(arrays, run, columns), out)


# --- a byte for each number ----------------------------------------------------------------------


def _plain(groups: Sequence[WeightGroup], parts: Parts, _early: Arrays) -> Meaning:
    rows, columns = matrix(parts[WEIGHT])
    whole = [group for group in groups if group.bits == BYTE]
    _check_zero(parts, WEIGHT, whole or groups)
    expect(parts[WEIGHT], INT8)
    run = _run(parts, (rows, columns))
    if ZERO in parts:
        expect(parts[ZERO], INT8, parts[SCALE].shape)
    dtype = parts[SCALE].dtype
    return Meaning("INT8", (rows, columns), dtype, partial(_decode_plain, run))


def _decode_plain(run: int, arrays: Arrays, out: NDArray[Any]) -> None:
    owners = _owners(arrays, run, out.shape[1])
    numbers = arrays[WEIGHT].__getitem__
    scaled_rows.decode(numbers, arrays.get(ZERO), arrays[SCALE], owners, out)


def _owners(arrays: Arrays, run: int, columns: int) -> NDArray[np.intp]:
    """Return the group of each column; -1 in the tensor that states them says that it does not."""
    stated, groups = arrays.get(G_IDX), columns // run
    if stated is None or (stated == -1).any():
        return np.arange(columns) // run
    if not 0 <= stated.min() <= stated.max() < groups:
        raise Misfit(f"weight_g_idx names groups outside 0 to {groups - 1}")
    return stated.astype(np.intp)
