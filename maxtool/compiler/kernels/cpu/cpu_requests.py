"""Requests that only a CPU has kernels for: its matrices are packed, its keys transposed."""

from __future__ import annotations

from maxtool.compiler.kernels.requests import Request


class PackColumns(Request):
    """Matrices that are known at run time only, packed as weights are."""

    dtype: str
    transposed: bool


class PackedLinear(Request):
    """Product with a packed matrix, in float32."""

    weight_dtype: str
    bias: bool = False
    batched: bool = False


class PackedExpertLinear(Request):
    """Products with the packed matrices of the experts that were chosen for each row."""

    weight_dtype: str
