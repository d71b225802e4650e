"""GPTQ, as AutoGPTQ and GPTQModel store it: ``(number - zero) * scale`` by groups of inputs.

Numbers are packed along the inputs, ``qweight`` ``[inputs * bits / 32, outputs]``, zeros along the
outputs, ``qzeros`` ``[groups, outputs * bits / 32]``; ``scales`` are ``[groups, outputs]``.
``g_idx`` says for each input which group it belongs to; activation order (``desc_act``) mixes them.
The first format, ``gptq``, has the zeros less 1; ``gptq_v2`` has them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.weights.schemes import packed_integers as packing
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
from maxtool.weights.schemes.settings import (
    AUTO_ROUND,
    FLAG,
    OFF,
    Count,
    OneOf,
    Rule,
    anything,
    check,
)

QWEIGHT, QZEROS, SCALES, G_IDX = ".qweight", ".qzeros", ".scales", ".g_idx"
WORDS = frozenset({DType.int32})
INDICES = frozenset({DType.int32, DType.int64})
SCALE_TYPES = frozenset({DType.float16, DType.bfloat16, DType.float32})
WHOLE = -1  # the group size that means one group

RULES: Mapping[str, Rule] = {
    "quant_method": OneOf("gptq"),
    "method": OneOf("gptq"),
    "bits": OneOf(2, 3, 4, 8),
    "group_size": Count((WHOLE,)),
    "checkpoint_format": OneOf("gptq", "gptq_v2"),
    "format": OneOf("gptq", "gptq_v2"),
    "data_type": OneOf("int"),
    "pack_dtype": OneOf("int32"),
    "is_marlin_format": OFF,
    "desc_act": FLAG,
    "sym": FLAG,
    "lm_head": FLAG,
    **AUTO_ROUND,
    **anything(
        *("act_group_aware", "backend", "batch_size", "block_name_to_quantize"),
        *("cache_block_outputs", "damp_auto_increment", "damp_percent", "dataset"),
        *("disable_exllama", "exllama_config", "max_input_length", "meta"),
        *("hyb_act", "model_file_base_name", "offload_to_disk", "offload_to_disk_path"),
        *("model_name_or_path", "model_seqlen", "module_name_preceding_first_block"),
        *("modules_in_block_to_quantize", "modules_to_not_convert", "mse", "pad_token_id"),
        *("static_groups", "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama"),
    ),
}


def layouts(config: Mapping[str, Any]) -> tuple[Layout, ...]:
    """Read a ``quantization_config`` of GPTQ; ``Unsupported`` says what is."""
    check(config, RULES, needed=("bits", "group_size"))
    stated = {config[key] for key in ("checkpoint_format", "format") if config.get(key)}
    if len(stated) > 1:
        raise Unsupported("checkpoint_format and format differ")
    less = 0 if stated == {"gptq_v2"} else 1
    meaning = partial(_meaning, config["bits"], config["group_size"], less)
    ordered = (G_IDX,) if config.get("desc_act") else ()
    return (Layout(QWEIGHT, ".weight", QWEIGHT, meaning, (QZEROS, SCALES, *ordered), (G_IDX,)),)


def _meaning(bits: int, group: int, less: int, parts: Parts, _early: Arrays) -> Meaning:
    words, outputs = matrix(parts[QWEIGHT])
    inputs = words * packing.WORD // bits
    groups = 1 if group == WHOLE else -(-inputs // group)
    if packing.words_of(inputs, bits) != words:
        raise Misfit(f"{parts[QWEIGHT].name} has {words} rows, not whole numbers of {bits} bits")
    expect(parts[QWEIGHT], WORDS)
    expect(parts[QZEROS], WORDS, (groups, packing.words_of(outputs, bits)))
    expect(parts[SCALES], SCALE_TYPES, (groups, outputs))
    if G_IDX in parts:
        expect(parts[G_IDX], INDICES, (inputs,))
    size = inputs if group == WHOLE else min(group, inputs)
    dtype = parts[SCALES].dtype
    decode = partial(_decode, bits, size, less, dtype)
    return Meaning(f"GPTQ{bits}", (outputs, inputs), dtype, decode)


def _decode(
    bits: int, group: int, less: int, dtype: DType, arrays: Arrays, out: NDArray[Any]
) -> None:
    outputs, inputs = out.shape
    scales = arrays[SCALES].astype(np.float32)
    zeros = packing.unpack_last(arrays[QZEROS], bits, outputs) + np.uint8(less)
    zeros = (zeros & np.uint8((1 << bits) - 1)).astype(np.float32)
    owners = _owners(arrays.get(G_IDX), np.arange(inputs) // group, len(scales))
    step = packing.WORD * max(1, packing.rows_at_once(outputs) // packing.WORD)
    for first in range(0, inputs, step):
        last = min(first + step, inputs)
        words = arrays[QWEIGHT][first * bits // packing.WORD : -(-last * bits // packing.WORD)]
        numbers = packing.unpack_first(words, bits, last - first)
        here = owners[first:last]
        out[:, first:last] = packing.products(numbers, zeros[here], scales[here], dtype).T


def _owners(stated: NDArray[Any] | None, usual: NDArray[np.intp], groups: int) -> NDArray[np.intp]:
    """Return the group of each input."""
    if stated is None:
        return usual
    if stated.size and not 0 <= stated.min() <= stated.max() < groups:
        raise Misfit(f"{G_IDX[1:]} names groups outside 0 to {groups - 1}")
    return stated.astype(np.intp)
