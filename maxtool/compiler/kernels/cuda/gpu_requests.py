"""Requests that only GPUs have kernels for: fused launches, and weights as they are."""

from __future__ import annotations

from maxtool.compiler.kernels.cuda.attention_scores import Scores
from maxtool.compiler.kernels.kernel_options import (
    AS_IT_IS,
    ChainEpilogue,
    ChainStep,
    Phases,
    Window,
)
from maxtool.compiler.kernels.requests import Attention, Request


class CachedAttention(Attention):
    """Attention of many queries, whose results are of the type ``out``."""

    out: str
    sinks: bool = False  # whether each head has the score of one more key, whose value is zero


class AttentionSplit(Request):
    """Attention of one token over ``splits`` parts of the keys."""

    heads: int
    kv_heads: int
    head_dim: int
    scores: Scores
    dtype: str
    splits: int


class AttentionStep(AttentionSplit):
    """The same after rotating ``dim`` elements of each head and writing into the cache."""

    dim: int


class AttentionJoin(Request):
    """Results of the parts of an attention combined."""

    heads: int
    head_dim: int
    splits: int
    out: str
    sinks: bool = False  # as above


class ChainRmsNorm(Request):
    """RMS normalisation of a chain of elementwise operations, whose result may be kept, too."""

    dim: int
    eps: float
    inputs: int
    steps: tuple[ChainStep, ...]
    kept: bool
    out: str


class Depthwise(Request):
    """Convolution of each channel by itself; ``fours``: channels are a multiple of four."""

    window: Window
    dtype: str
    fours: bool
    after: ChainEpilogue


class ExpertOrder(Request):
    """Rows sorted by the expert that was chosen for them."""

    experts: int


class Product(Request):
    """Base of products with matrices of any number of rows.

    ``aligned``: k is a multiple of 16 bytes; ``fours``: n is a multiple of four; ``wide``: there
    may be columns enough for large tiles.
    """

    weight_dtype: str
    aligned: bool
    fours: bool
    wide: bool


class ExpertLinear(Product):
    """Products with the matrices of experts; ``few`` if each row is a step of its own."""

    few: bool


class Linear(Product):
    """Product with a matrix, and what is done to it then."""

    batched: bool = False
    after: ChainEpilogue = AS_IT_IS


class FewProducts(Request):
    """Base of products of the same few rows in one launch, which may round the rows first."""

    weight_dtype: str
    aligned: bool
    rounds: bool


class Linears(FewProducts):
    """Products, each with a bias or none, and the last perhaps with a residual."""

    biases: tuple[bool, ...]
    residual: bool


class GatedLinear(FewProducts):
    """Two products and the elementwise operations ``steps`` that join them."""

    biases: tuple[bool, bool]
    steps: tuple[ChainStep, ...]
    out: str


class ImplicitGemm(Product):
    """Convolution as such a product; of several groups or phases, each is one."""

    window: Window
    grouped: bool
    after: ChainEpilogue
    phases: Phases | None = None  # of a transposed convolution


class Narrow(Request):
    """float32 rows rounded to a type of 16 bits."""

    dtype: str


class RopeIntoCache(Request):
    """Rotated queries, and rotated keys and values written into a cache."""

    heads: int
    kv_heads: int
    head_dim: int
    dim: int
    dtype: str
