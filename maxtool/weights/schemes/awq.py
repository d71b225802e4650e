"""AWQ, as AutoAWQ stores it for its GEMM kernels: ``(number - zero) * scale`` by groups of inputs.

Eight numbers of 4 bits lie in a word, along the outputs: ``qweight`` ``[inputs, outputs / 8]``,
``qzeros`` ``[groups, outputs / 8]``; ``scales`` are ``[groups, outputs]``. Within a word, the
lowest bits hold output 0, the next 2, 4 and 6, then 1, 3, 5 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.schemes import packed_integers as packing
from maxtool.weights.schemes.scheme import Arrays, Layout, Meaning, Misfit, Parts, expect, matrix
from maxtool.weights.schemes.settings import AUTO_ROUND, Count, OneOf, Rule, anything, check

QWEIGHT, QZEROS, SCALES = ".qweight", ".qzeros", ".scales"
WORDS = frozenset({DType.int32})
SCALE_TYPES = frozenset({DType.float16, DType.bfloat16, DType.float32})
BITS = 4
IN_WORD = packing.WORD // BITS
# The outputs, of the eight of a word, whose numbers lie in it from the lowest bits on.
OUTPUTS = (0, 2, 4, 6, 1, 3, 5, 7)
WHOLE = -1  # the group size that means one group

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("awq"),
    "method": OneOf("awq"),
    "data_type": OneOf("int"),
    "bits": OneOf(BITS),
    "w_bit": OneOf(BITS),
    "group_size": Count((WHOLE,)),
    "q_group_size": Count((WHOLE,)),
    "zero_point": OneOf(True),
    "version": OneOf("gemm", "GEMM"),
    "format": OneOf("gemm", "GEMM"),
    **AUTO_ROUND,
    **anything("backend", "do_fuse", "exllama_config", "fuse_max_seq_len"),
    **anything("modules_to_fuse", "modules_to_not_convert", "desc_act", "sym"),
}


def layouts(config: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of AWQ; ``Unsupported`` says what is."""
    group = config.get("group_size") or config.get("q_group_size")
    said = {**config, "group_size": group}
    check(said, RULES, needed=("group_size",))
    meaning = partial(_meaning, said["group_size"])
    return (Layout(QWEIGHT, ".weight", QWEIGHT, meaning, (QZEROS, SCALES)),)


def _meaning(group: int, parts: Parts, _early: Arrays) -> Meaning:
    inputs, words = matrix(parts[QWEIGHT])
    outputs = words * IN_WORD
    size = inputs if group == WHOLE else group
    if inputs % size:
        raise Misfit(f"{parts[QWEIGHT].name} has {inputs} rows, not whole groups of {size}")
    groups = inputs // size
    expect(parts[QWEIGHT], WORDS)
    expect(parts[QZEROS], WORDS, (groups, words))
    expect(parts[SCALES], SCALE_TYPES, (groups, outputs))
    dtype = parts[SCALES].dtype
    return Meaning("AWQ4", (outputs, inputs), dtype, partial(_decode, size, dtype))


def _decode(group: int, dtype: DType, arrays: Arrays, out: NDArray[Any]) -> None:
    outputs, inputs = out.shape
    scales = arrays[SCALES].astype(np.float32)
    zeros = _unpack(arrays[QZEROS]).astype(np.float32)
    owners = np.arange(inputs) // group
    step = packing.rows_at_once(outputs)
    for first in range(0, inputs, step):
        part = slice(first, first + step)
        numbers, here = _unpack(arrays[QWEIGHT][part]), owners[part]
        out[:, part] = packing.products(numbers, zeros[here], scales[here], dtype).T


def _unpack(words: NDArray[Any]) -> packing.UInt8:
    """The numbers of ``[rows, words]`` in the order of the outputs."""
    return packing.unpack_last(words, BITS, words.shape[1] * IN_WORD, OUTPUTS)
