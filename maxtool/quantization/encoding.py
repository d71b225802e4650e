"""The table of GGUF block encodings.

Every encoding stores ``elements_per_block`` consecutive elements of a row in ``block_size`` bytes.
Sizes and ids are those of ggml's ``ggml-common.h`` and ``enum ggml_type``.
"""

from __future__ import annotations

from enum import Enum


class QuantizationEncoding(Enum):
    """Block encoding of a quantized tensor's elements."""

    # name = (GGUF type id, elements per block, bytes per block)
    Q4_0 = (2, 32, 18)
    Q4_1 = (3, 32, 20)
    Q5_0 = (6, 32, 22)
    Q5_1 = (7, 32, 24)
    Q8_0 = (8, 32, 34)
    Q8_1 = (9, 32, 36)
    Q2_K = (10, 256, 84)
    Q3_K = (11, 256, 110)
    Q4_K = (12, 256, 144)
    Q5_K = (13, 256, 176)
    Q6_K = (14, 256, 210)
    Q8_K = (15, 256, 292)
    IQ2_XXS = (16, 256, 66)
    IQ2_XS = (17, 256, 74)
    IQ3_XXS = (18, 256, 98)
    IQ1_S = (19, 256, 50)
    IQ4_NL = (20, 32, 18)
    IQ3_S = (21, 256, 110)
    IQ2_S = (22, 256, 82)
    IQ4_XS = (23, 256, 136)
    IQ1_M = (29, 256, 56)
    TQ1_0 = (34, 256, 54)
    TQ2_0 = (35, 256, 66)
    MXFP4 = (39, 32, 17)
    NVFP4 = (40, 64, 36)
    Q1_0 = (41, 128, 18)
    Q2_0 = (42, 64, 18)

    @property
    def gguf_id(self) -> int:
        """The ``ggml_type`` number."""
        return self.value[0]

    @property
    def elements_per_block(self) -> int:
        """Consecutive elements of a row that one block encodes."""
        return self.value[1]

    @property
    def block_size(self) -> int:
        """Bytes of one block."""
        return self.value[2]

    def row_bytes(self, elements: int) -> int:
        """Bytes a row of ``elements`` takes; ``ValueError`` if it is not of whole blocks."""
        blocks, rest = divmod(elements, self.elements_per_block)
        if rest:
            what = f"{self.name} needs rows divisible by {self.elements_per_block}, not {elements}"
            raise ValueError(what)
        return blocks * self.block_size

    def __repr__(self) -> str:
        return f"QuantizationEncoding.{self.name}"


BY_GGUF = {encoding.gguf_id: encoding for encoding in QuantizationEncoding}
