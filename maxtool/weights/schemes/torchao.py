"""torchao's tensors as safetensors hold them: int8, narrower numbers in int8, 8-bit floats.

The metadata of the file has JSON for each weight: the class of the tensor, the type that it decodes
to, and the names of the tensors that make it, ``_weight_qdata``, ``_weight_scale`` and
``_weight_zero_point``. Products are computed in float32, and rounded to that type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.weights.jsonfile import parse_object
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
from maxtool.weights.schemes.settings import OneOf, Rule, anything, check

NUMBERS, SCALE, ZERO = "._weight_qdata", "._weight_scale", "._weight_zero_point"
WEIGHT = ".weight"
INT8 = frozenset({DType.int8})
FLOAT8 = frozenset({DType.float8_e4m3fn, DType.float8_e5m2})
RESULTS = {name: DType(name) for name in ("float16", "bfloat16", "float32")}
NAMES_KEY = "tensor_names"
TENSOR = "Tensor"
MAX_TEXT = 1 << 14

# The types of numbers in the classes that are read.
CLASSES: Mapping[str, frozenset[DType]] = {
    "Int8Tensor": INT8,
    "IntxUnpackedToInt8Tensor": INT8,
    "Float8Tensor": FLOAT8,
}
PARTS = {"qdata", "scale", "zero_point"}

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("torchao"),
    **anything("quant_type", "quant_type_kwargs", "modules_to_not_convert"),
    **anything("include_input_output_embeddings", "untie_embedding_weights"),
}

Facts = Mapping[str, Any]


def layouts(config: Mapping[str, Any], metadata: Mapping[str, object]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of torchao, and the file's metadata.

    Raises:
        Unsupported: If there is a tensor of another class; it says which are supported.
    """
    check(config, RULES)
    weights: dict[str, Facts] = {}
    for name, text in metadata.items():
        facts = _facts(text) if name != NAMES_KEY else {}
        if "_type" in facts and facts["_type"] != TENSOR:
            weights[name] = _checked(name, facts)
    return (Layout(NUMBERS, WEIGHT, NUMBERS, partial(_meaning, weights), (SCALE,), (ZERO,)),)


def _facts(text: object) -> Facts:
    """Parse what the metadata say of one tensor; empty if they say something else."""
    if not isinstance(text, str) or not text.startswith("{") or len(text) > MAX_TEXT:
        return {}
    try:
        return parse_object(text.encode(), file=Path())
    except MalformedFile:
        return {}


def _checked(name: str, facts: Facts) -> Facts:
    kind = facts["_type"]
    if not isinstance(kind, str) or kind not in CLASSES:
        raise Unsupported(f"{name} is of the class {kind!r}; supported: {', '.join(CLASSES)}")
    parts = facts.get("_tensor_data_names")
    if not isinstance(parts, list) or not all(part in PARTS for part in map(str, parts)):
        raise Unsupported(f"{name} is made of {parts}; supported: {', '.join(sorted(PARTS))}")
    return facts


def _meaning(weights: Mapping[str, Facts], parts: Parts, _early: Arrays) -> Meaning:
    name = parts[NUMBERS].name.removesuffix(NUMBERS) + WEIGHT
    facts = weights.get(name)
    if facts is None:
        raise Misfit(f"the metadata of the file say nothing of {name}")
    shape = matrix(parts[NUMBERS])
    expect(parts[NUMBERS], CLASSES[facts["_type"]])
    run = scaled_rows.run_of(parts[SCALE], shape)
    data = facts.get("_data")
    if not isinstance(data, dict) or data.get("block_size") not in _blocks(parts, shape, run):
        raise Misfit(f"the metadata of {name} do not say the block of its scales")
    if (ZERO in parts) != ("zero_point" in facts["_tensor_data_names"]):
        stored = "a" if ZERO in parts else "no"
        raise Misfit(f"{name} has {stored} zero point, and the metadata say otherwise")
    if ZERO in parts:
        expect(parts[ZERO], INT8, parts[SCALE].shape)
    stated = data.get("dtype")
    result = stated.get("_data") if isinstance(stated, dict) else None
    if not isinstance(result, str) or result not in RESULTS:
        raise Misfit(f"{name} decodes to {result}; supported: {', '.join(RESULTS)}")
    label = parts[NUMBERS].type_name
    label = "INT8" if label == "I8" else label
    return Meaning(label, shape, RESULTS[result], partial(_decode, run))


def _blocks(parts: Parts, shape: tuple[int, int], run: int) -> tuple[list[int], ...]:
    """Return the blocks that a scale of this shape can be of: of one row, or of all."""
    return ([1, run],) if parts[SCALE].size > 1 else ([1, run], list(shape))


def _decode(run: int, arrays: Arrays, out: NDArray[Any]) -> None:
    owners = np.arange(out.shape[1]) // run
    numbers = arrays[NUMBERS].__getitem__
    scaled_rows.decode(numbers, arrays.get(ZERO), arrays[SCALE], owners, out)
