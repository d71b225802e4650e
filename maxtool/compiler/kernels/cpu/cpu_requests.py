"""Requests that only a CPU has kernels for: its matrices are packed, its keys transposed."""

from __future__ import annotations

from maxtool.compiler.kernels.kernel_options import ChainEpilogue, Epilogue, Phases, Window
from maxtool.compiler.kernels.requests import Attention, DotAttention, Request


class BlockAttention(DotAttention):
    """The same of types that are computed in float32."""

    by_token: bool  # whether operands are [batch, length, heads, dim], or heads before the length


class CutRows(Request):
    """Neighbouring elements of each row."""

    dtype: str
    width: int
    first: int
    count: int


class JoinRows(Request):
    """Rows of several tensors, one behind the other."""

    dtype: str
    widths: tuple[int, ...]


class DepthwiseConvolution(Request):
    """Convolution of each channel for itself.

    They are of float32, or of bytes of that type less a zero point, which become sums in int32.
    """

    window: Window
    image: tuple[int, int] | None  # of any sizes if there are none
    channels: int
    after: ChainEpilogue
    dtype: str = "float32"
    zero: int = 0


class DirectConvolution(Request):
    """Convolution with a packed filter in float32."""

    window: Window
    image: tuple[int, int] | None  # of any sizes if there are none
    channels: int
    features: int
    groups: int  # of both
    phases: Phases | None  # of a transposed convolution
    result: tuple[int, int] | None  # rows and columns of that, if they are known
    scaled: bool  # whether each channel of an image has a factor; of single pixels alone
    after: ChainEpilogue


class StackDepth(Request):
    """The slices of a volume that a window along them sees, as channels side by side."""

    window: Window
    channels: int


class IntegerConvolution(Request):
    """Convolution with a packed filter of bytes, of images of bytes."""

    window: Window
    image: tuple[int, int] | None  # of any sizes if there are none
    channels: int
    features: int
    dtype: str  # of the image
    zero: int  # what stands for 0 there
    after: ChainEpilogue


class PackColumns(Request):
    """Matrices that are known at run time only, packed as weights are."""

    dtype: str
    transposed: bool
    terms: int = 1


class PackedLinear(Request):
    """Product with a packed matrix; of pairs of terms where so many lie side by side."""

    weight_dtype: str
    bias: bool = False
    batched: bool = False
    terms: int = 1


class PackedEmbedding(Request):
    """Rows of a table that is packed as a matrix, by number, in float32."""

    vocab: int
    dim: int
    weight_dtype: str
    block: int  # rows side by side
    terms: int = 1


class PackedLinears(Request):
    """Products of the same rows with packed matrices: results of one or two, with epilogues."""

    weight_dtypes: tuple[tuple[str, ...], ...]  # of the matrices of each result
    epilogues: tuple[Epilogue, ...]
    terms: int = 1


class PackedExpertLinear(Request):
    """Products with the packed matrices of the experts that were chosen for each row."""

    weight_dtype: str
    terms: int = 1


class QuantizedLinear(Request):
    """Product with a matrix of quantized weights, packed as ``quantized_packing`` does."""

    encoding: str
    bias: bool = False


class QuantizedLinears(Request):
    """Products of the same rows with quantized matrices: results of one or two, with epilogues."""

    encodings: tuple[tuple[str, ...], ...]  # of the matrices of each result
    epilogues: tuple[Epilogue, ...]
    one_row: bool  # whether the kernel is for one row only


class QuantizedEmbedding(Request):
    """Rows of a table of quantized weights by number, in float32."""

    encoding: str
    vocab: int
    dim: int


class QuantizedExpertLinear(Request):
    """Products with the quantized matrices of the experts that were chosen for each row."""

    encoding: str


class QuantizeQ8(Request):
    """Keys or values in blocks of Q8_0, as a cache may hold them: quants, and their scales."""

    heads: int
    head_dim: int
    packed: bool  # whether four quants are an int32


class QuantizedAttention(Request):
    """Attention over a cache in blocks of Q8_0; fields as those of ``Attention``."""

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    chunked: bool
    softcap: float | None
    slots: bool  # whether each row of the batch says which one of the cache it sees
    sinks: bool = False
    causal: bool = True


class CachedAttention(Attention):
    """Attention over a cache with a row for each text."""

    sinks: bool = False  # whether each head has the score of one more key, whose value is zero


class SlotAttention(CachedAttention):
    """Attention over a cache with slots, of which each row of the batch has one."""


class WinogradConvolution(Request):
    """Convolution of 3 x 3 windows with a transformed filter, of images of known sizes."""

    window: Window
    image: tuple[int, int]
    channels: int
    features: int
    outputs: int  # rows of a tile's outputs
    after: ChainEpilogue
