"""Requests for kernels: a type for each kernel, whose fields are the options that it is built for.

A target's table says which factory builds the kernel of a request. :func:`row` and :func:`row_with`
let a type checker compare a factory's parameters with the fields of its request. Requests are keys:
a module builds the kernels of equal ones once. ``out`` is the element type of a result, where it
differs from that of what is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, dataclass_transform

from maxtool.compiler.kernels.kernel_options import ChainStep, HeadSizes, Mask, Window

PrimFunc: TypeAlias = Any  # tvm ships no types
Options = ParamSpec("Options")
Machine = TypeVar("Machine")


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Request:
    """Base of all requests; a subclass is a frozen dataclass with keyword arguments only."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


# A type of requests, and the factory of its kernels.
Row: TypeAlias = tuple[Callable[..., Request], Callable[..., PrimFunc]]


def row(request: Callable[Options, Request]) -> Callable[[Callable[Options, PrimFunc]], Row]:
    """Return the row of a table, given a factory that takes the fields of ``request``."""
    return lambda factory: (request, factory)


def row_with(
    machine: type[Machine],  # noqa: ARG001 - it says what the factory takes first
    request: Callable[Options, Request],
) -> Callable[[Callable[Concatenate[Machine, Options], PrimFunc]], Row]:
    """Return the row of a factory that takes a property of the machine before the fields."""
    return lambda factory: (request, factory)


class AddPositions(Request):
    """Learned positions added to the vectors of tokens."""

    hidden: int
    weight_dtype: str


class Attention(Request):
    """Attention over a cache of the type ``dtype``; on a CPU with transposed keys."""

    heads: int  # of queries, a multiple of ``kv_heads``
    kv_heads: int  # of keys and values
    head_dim: int
    scale: float  # of the scores, usually ``head_dim ** -0.5``
    window: int | None  # keys that a query sees at most
    chunked: bool  # whether those are the ones of its chunk of ``window``
    softcap: float | None  # scores become ``softcap * tanh(score / softcap)``
    causal: bool  # whether a query sees none of the keys behind its own
    dtype: str


class CacheWrite(Request):
    """Keys or values of new tokens written into a cache, where keys may be transposed."""

    kv_heads: int
    head_dim: int
    dtype: str
    transposed: bool
    slots: bool = False  # whether each row says which one of the cache is written, and where
    source: str = "float32"  # the type of what is written, if it is not that


class CausalConvolution(Request):
    """Convolution over time of each channel by itself, with the last inputs kept."""

    taps: int
    channels: int
    slots: bool = False  # whether each row says which one of the state is its own


class Convolution(Request):
    """Convolution of images, with channels last; ``transposed`` spreads what others gather."""

    dtype: str
    window: Window
    channels: int
    features: int
    groups: int
    transposed: bool = False


class CumsumRows(Request):
    """Running sums along rows."""

    dtype: str
    exclusive: bool
    reverse: bool


class DotAttention(Request):
    """Attention without a cache; ``scale`` multiplies the scores."""

    dtype: str
    heads: HeadSizes
    mask: Mask | None
    causal: bool
    scale: float
    out: str


class Embedding(Request):
    """Rows of a table by number, in float32, of GPUs; CPUs have packed tables."""

    vocab: int
    dim: int
    weight_dtype: str


class GatherRows(Request):
    """Elements along the middle one of three dimensions, by index."""

    dtype: str
    places: str


class GroupNormRows(Request):
    """Normalisation of groups of channels, a row for each group."""

    dtype: str
    weight: str
    eps: float
    groups: int
    channels: int


class IndexRows(Request):
    """Index of the largest or smallest element of each row."""

    op: str
    dtype: str


class IntegerPower(Request):
    """Powers of integers."""

    dtype: str


class L2NormRows(Request):
    """Rows of any length and type divided by their Euclidean norm."""

    dtype: str
    eps: float


class LayerNormRows(Request):
    """Layer normalisation of rows."""

    dtype: str
    weight: str
    eps: float
    out: str


class LinearAttention(Request):
    """Linear attention over a state that each token decays and adds to."""

    key_heads: int  # of queries and keys
    heads: int  # of values, a multiple of ``key_heads``
    key_dim: int
    value_dim: int
    delta: bool  # whether what the state gives for a key is replaced in part
    by_channel: bool = False  # whether each channel of keys has a decay of its own
    slots: bool = False  # whether each row says which one of the state is its own


class NonzeroPlaces(Request):
    """Indices of the elements that are not zero."""

    rank: int


class Permute(Request):
    """Dimensions in the order ``dims``."""

    dtype: str
    dims: tuple[int, ...]


class Pointwise(Request):
    """Chain of elementwise operations on float32 rows of ``dim`` elements."""

    dim: int
    inputs: int
    steps: tuple[ChainStep, ...]
    columns: tuple[bool, ...] = ()  # which inputs are one row for all, if any is
    out: str = "float32"
    types: tuple[str, ...] = ()  # of the inputs, if one is not float32


class Pool(Request):
    """Largest element of each window of an image, their sum or their mean."""

    op: str  # max_pool, sum_pool or avg_pool
    dtype: str
    window: Window
    channels: int
    count_padding: bool


class PoolIndices(Request):
    """Place of the largest element of each window of an image."""

    dtype: str
    window: Window
    channels: int


class ReduceRows(Request):
    """Reduction of each row to one element."""

    op: str
    dtype: str


class RmsNorm(Request):
    """RMS normalisation of float32 rows of ``dim`` elements."""

    dim: int
    eps: float
    out: str = "float32"


class RmsNormRows(Request):
    """RMS normalisation of rows of any length and type, with an offset of the weight."""

    dtype: str
    weight: str
    eps: float
    offset: float
    round_first: bool


class Rope(Request):
    """Rotation of the first ``dim`` elements of each head by tables of angles."""

    head_dim: int
    dim: int


class RopeAngles(Request):
    """Cosines or sines of the rotary angles at all positions, by the length of the text."""

    half: int
    original: int
    factor: float
    long_factor: float
    function: str
    by_row: bool = False  # whether each row is another text's, of which it is the last position


class Sample(Request):
    """A token drawn from each row of logits."""


class ScatterBlocks(Request):
    """Rows of a matrix overwritten by rows of another one, by index."""

    dtype: str


class ScatterRows(Request):
    """Elements of each row overwritten or added to, by index."""

    dtype: str
    places: str
    adds: bool


class SelectiveScan(Request):
    """A scan over a state of each channel, which each token decays by a step of its own."""

    state_dim: int  # numbers that each channel has in the state
    channels: int
    slots: bool = False  # whether each row says which one of the state is its own


class SoftmaxRows(Request):
    """Softmax of rows, or its logarithm."""

    op: str
    dtype: str


class SortedPlaces(Request):
    """Indices of the elements of each row in their order."""

    dtype: str
    ascending: bool


class TopRows(Request):
    """Indices of the ``count`` largest elements of each row."""

    dtype: str
    count: int


class WeightedSum(Request):
    """Sums of the outputs of experts, weighted."""
