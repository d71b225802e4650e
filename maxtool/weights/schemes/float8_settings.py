"""Keys of a ``quantization_config`` of 8-bit floats.

Their tensors are read by :mod:`maxtool.weights.scaled_float8`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.weights.schemes import compressed_tensors
from maxtool.weights.schemes.settings import OneOf, Rule, anything, check

COMPRESSED = "compressed-tensors"
FORMATS = ("float-quantized", "naive-quantized")
METHODS = ("fp8", "fbgemm_fp8")


class TwoSizes:
    """Height and width of a block."""

    def problem(self, value: Any) -> str | None:  # noqa: ANN401 - any JSON value
        """Return what is supported, if ``value`` is not."""
        whole = isinstance(value, list) and all(type(size) is int and size > 0 for size in value)
        return None if whole and len(value) == 2 else "supported: two positive numbers"


RULES: Mapping[str, Rule] = {
    "quant_method": OneOf(*METHODS),
    "weight_block_size": TwoSizes(),
    **anything("activation_scale_ub", "activation_scheme", "dequantize", "fmt", "ignored_layers"),
    **anything("modules_to_convert", "modules_to_not_convert", "scale_fmt"),
}
WEIGHT_RULES: Mapping[str, Rule] = {
    **compressed_tensors.WEIGHT_RULES,
    "num_bits": OneOf(8),
    "type": OneOf("float"),
    "strategy": OneOf("tensor", "channel", "block"),
    **anything("block_structure"),
}


def check_keys(config: Mapping[str, Any]) -> None:
    """Check the keys of a method of 8-bit floats; ``Unsupported`` lists all that is wrong."""
    if config.get("quant_method") == COMPRESSED:
        compressed_tensors.checked_groups(config, FORMATS, WEIGHT_RULES)
    else:
        check(config, RULES)
