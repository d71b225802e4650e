"""bitsandbytes: blocks of NF4 or FP4 numbers times their largest magnitude, and rows of int8.

Two 4-bit numbers lie in a byte of ``weight``, the first in the high bits; a block goes on from one
row to the next. ``absmax`` holds the factors of blocks, as float32 or, nested, as 8-bit codes with
factors of their own. A tensor of JSON text says the block's size, and type and shape of the weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import CHUNK_ELEMENTS, cast
from maxtool.dtype import DType
from maxtool.errors import MalformedFile
from maxtool.weights.jsonfile import is_float32, parse_object
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
from maxtool.weights.schemes.settings import FLAG, OFF, OneOf, Rule, anything, check
from maxtool.weights.tensor_info import TensorInfo

WEIGHT, SCB, FORMAT = ".weight", ".SCB", ".weight_format"
ABSMAX, MAP = ".weight.absmax", ".weight.quant_map"
NESTED_ABSMAX, NESTED_MAP = ".weight.nested_absmax", ".weight.nested_quant_map"
STATE = ".weight.quant_state.bitsandbytes__"
BYTE = frozenset({DType.uint8})
INT8 = frozenset({DType.int8})
FLOAT32 = frozenset({DType.float32})
# bnb_4bit_quant_storage: the bytes of numbers may be called elements of these types.
STORAGE = frozenset({DType.uint8, DType.float16, DType.bfloat16, DType.float32})
RESULTS = {name: DType(name) for name in ("float16", "bfloat16", "float32")}
ROW_MAJOR = 0  # weight_format
NESTED_CODES = 256
LARGEST = 1 << 40
# The reciprocal of 127, as int8_vectorwise_dequant has it.
RECIPROCAL = np.float32(7.874015718698502e-3)

# functional.py, get_4bit_type: quantiles of the normal distribution; and a float of 2 exponent bits
# and 1 of mantissa whose largest value is 12, with a second zero, which is not negative.
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
FP4 = tuple(value / 12 for value in (0, 0.0625, 8, 12, 4, 6, 2, 3))
CODES = {"nf4": NF4, "fp4": (*FP4, *(0.0 - value for value in FP4))}

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("bitsandbytes"),
    "load_in_4bit": FLAG,
    "load_in_8bit": FLAG,
    "_load_in_4bit": FLAG,
    "_load_in_8bit": FLAG,
    "bnb_4bit_quant_type": OneOf(*CODES),
    "bnb_4bit_use_double_quant": FLAG,
    "bnb_4bit_quant_storage": OneOf(*(dtype.value for dtype in STORAGE)),
    "llm_int8_has_fp16_weight": OFF,
    **anything("bnb_4bit_compute_dtype", "llm_int8_enable_fp32_cpu_offload"),
    **anything("llm_int8_skip_modules", "llm_int8_threshold", "modules_to_not_convert"),
}


def layouts(config: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of bitsandbytes; ``Unsupported`` says what is."""
    check(config, RULES)
    four, eight = (bool(config.get(key)) for key in ("load_in_4bit", "load_in_8bit"))
    if four == eight:
        raise Unsupported("one of load_in_4bit and load_in_8bit has to be true")
    if eight:
        return (Layout(SCB, WEIGHT, WEIGHT, _rows, optional=(FORMAT,)),)
    return tuple(
        Layout(
            f"{STATE}{code}",
            WEIGHT,
            WEIGHT,
            partial(_blocks, code),
            (ABSMAX, MAP),
            (NESTED_ABSMAX, NESTED_MAP),
            (f"{STATE}{code}",),
        )
        for code in CODES
    )


# --- 8 bits --------------------------------------------------------------------------------------


def _rows(parts: Parts, _early: Arrays) -> Meaning:
    shape = matrix(parts[WEIGHT])
    expect(parts[WEIGHT], INT8)
    expect(parts[SCB], FLOAT32, shape[:1])
    if FORMAT in parts:
        expect(parts[FORMAT], BYTE, ())
    return Meaning("INT8", shape, DType.float32, _decode_rows)


def _decode_rows(arrays: Arrays, out: NDArray[Any]) -> None:
    """``number * scale * (1 / 127)`` in float32, rounded twice as there."""
    if FORMAT in arrays and int(arrays[FORMAT]) != ROW_MAJOR:
        raise Misfit(f"weight_format is {int(arrays[FORMAT])}; supported: {ROW_MAJOR}, by rows")
    with np.errstate(all="ignore"):
        np.multiply(arrays[WEIGHT], arrays[SCB][:, None], out=out)
        out *= RECIPROCAL


# --- 4 bits --------------------------------------------------------------------------------------


def _blocks(code: str, parts: Parts, early: Arrays) -> Meaning:
    state = _state(code, parts[f"{STATE}{code}"], early[f"{STATE}{code}"])
    shape = tuple(state["shape"])
    elements = math.prod(shape)
    blocks = -(-elements // state["blocksize"])
    expect(parts[WEIGHT], STORAGE)
    if parts[WEIGHT].nbytes != -(-elements // 2):
        what = f"{parts[WEIGHT].name} has {parts[WEIGHT].nbytes} bytes"
        raise Misfit(f"{what}, for {list(shape)} of 4 bits")
    expect(parts[MAP], FLOAT32, (len(CODES[code]),))
    nested = "nested_blocksize" in state
    expect(parts[ABSMAX], BYTE if nested else FLOAT32, (blocks,))
    if nested:
        _check_nested(parts, -(-blocks // state["nested_blocksize"]))
    decode = partial(_decode_blocks, code, state)
    return Meaning(code.upper(), shape, RESULTS[state["dtype"]], decode)


def _check_nested(parts: Parts, groups: int) -> None:
    for ending, size in ((NESTED_ABSMAX, groups), (NESTED_MAP, NESTED_CODES)):
        if ending not in parts:
            raise Misfit(f"{ending[1:]} is missing, and absmax is nested")
        expect(parts[ending], FLOAT32, (size,))


def _state(code: str, info: TensorInfo, text: NDArray[Any]) -> dict[str, Any]:
    """Parse the text beside a weight."""
    try:
        state: dict[str, Any] = parse_object(text.tobytes(), file=info.file)
    except MalformedFile as error:
        raise Misfit(f"{info.name}: {error.what}") from None
    nested = {"nested_blocksize", "nested_dtype", "nested_offset"}
    problems = [key for key, fits in STATE_RULES.items() if not fits(state.get(key))]
    if nested & state.keys():
        problems += [key for key, fits in NESTED_RULES.items() if not fits(state.get(key))]
    problems += state.keys() - STATE_RULES.keys() - NESTED_RULES.keys()
    if state.get("quant_type") != code:
        problems.append("quant_type")
    if problems:
        raise Misfit(f"{info.name} has an unknown or wrong {problems[0]}")
    return state


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value < LARGEST


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or not 0 < len(value) <= 4:
        return False
    return all(map(_is_size, value)) and math.prod(value) < LARGEST


STATE_RULES = {
    "quant_type": lambda value: isinstance(value, str),
    "blocksize": _is_size,
    "dtype": lambda value: isinstance(value, str) and value in RESULTS,
    "shape": _is_shape,
}
NESTED_RULES = {
    "nested_blocksize": _is_size,
    "nested_dtype": lambda value: value == "float32",
    "nested_offset": is_float32,
}


@cache
def _table(code: str) -> NDArray[np.float32]:
    return np.array(CODES[code], np.float32)


def _decode_blocks(code: str, state: Mapping[str, Any], arrays: Arrays, out: NDArray[Any]) -> None:
    """``code[number] * absmax`` in float32, rounded once to the weight's type."""
    if not np.array_equal(arrays[MAP], _table(code)):
        raise Misfit(f"quant_map does not hold the values of {code}")
    factors = _factors(state, arrays)
    stored = np.ascontiguousarray(arrays[WEIGHT]).reshape(-1).view(np.uint8)
    flat = out.reshape(-1)
    size = min(state["blocksize"], flat.size)
    dtype = DType.from_numpy(out.dtype)
    step = 2 * size * max(1, CHUNK_ELEMENTS // (2 * size))
    for first in range(0, flat.size, step):
        part = slice(first, min(first + step, flat.size))
        pairs = stored[first // 2 : -(-part.stop // 2)]
        numbers = np.stack((pairs >> 4, pairs & 15), axis=1).reshape(-1)[: part.stop - first]
        scales = factors[first // size : -(-part.stop // size)].repeat(size)[: numbers.size]
        with np.errstate(all="ignore"):
            flat[part] = cast(_table(code)[numbers] * scales, dtype)[0]


def _factors(state: Mapping[str, Any], arrays: Arrays) -> NDArray[np.float32]:
    """The largest magnitude of each block: as stored, or by its code, its factor and the offset."""
    absmax = arrays[ABSMAX]
    if "nested_blocksize" not in state:
        return absmax
    size = min(state["nested_blocksize"], absmax.size)
    outer = arrays[NESTED_ABSMAX].repeat(size)[: absmax.size]
    with np.errstate(all="ignore"):
        inner: NDArray[np.float32] = arrays[NESTED_MAP][absmax] * outer
        return inner + np.float32(state["nested_offset"])
