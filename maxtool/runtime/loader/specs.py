"""Tensors and functions as the manifest describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

# Where a model takes padding that is nowhere else to be, as nothing hides it from what follows.
BEHIND = "behind"
# What a model does by itself; one without a task has functions of arrays, and no state.
GENERATE, EMBED, IMAGE, TRANSCRIBE = "generate", "embed", "image", "transcribe"
# The task of a model of images and texts, its entries beside ``EMBED``, which is for texts: the
# vector of an image, and a logit for the vectors of an image and a text.
DUAL_ENCODER, EMBED_IMAGE, SCORE = "dual_encoder", "embed_image", "score"
TEXT_TO_TEXT = "text_to_text"  # it writes a text behind another, which an encoder reads
# The entry of a model of images or texts that has classes; its other one is ``EMBED``.
CLASSIFY = "classify"
# The entry of a model with an encoder that writes what it gives into the state.
ENCODE = "encode"
# The entry of a model of texts that reads an image into the state.
LOOK = "look"
# The input that says how many positions of the source there are.
SOURCE_LENGTH = "source_length"
ALIGNMENT = 64
# What follows the name of an entry in that of the function which calls its kernels one by one,
# where the entry itself runs several at once.
SEPARATE = "_separate"
# Texts that a state may hold side by side.
MAX_BATCH = 4096
DTYPES = {name: np.dtype(name) for name in ("bool", "float16", "float32", "float64")}
DTYPES |= {
    f"{sign}int{n}": np.dtype(f"{sign}int{n}") for sign in ("", "u") for n in (8, 16, 32, 64)
}
# Types that NumPy lacks: arrays hold their bits.
BITS = {"bfloat16": np.dtype("uint16")} | {
    f"float8_{form}": np.dtype("uint8")
    for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
}
DTYPES |= BITS
# Quantized weights lie in records: the blocks of ``COLUMNS`` rows that hold the same elements of
# each. By the name of the encoding, the elements of a row in a record, and the record's bytes.
COLUMNS = 16
RECORDS = {
    "Q4_0": (32, 288),
    "Q4_1": (32, 320),
    "Q5_0": (32, 352),
    "Q5_1": (32, 384),
    "Q8_0": (32, 544),
    "Q2_K": (256, 1344),
    "Q3_K": (256, 1824),
    "Q4_K": (256, 2368),
    "Q5_K": (256, 2880),
    "Q6_K": (256, 3360),
    "IQ4_NL": (32, 288),
    "IQ4_XS": (256, 2208),
    "MXFP4": (32, 272),
}


@dataclass(frozen=True)
class Filling:
    """Padding that every text gets which a model makes a vector of."""

    length: int  # tokens that each text has then
    token: int  # what is put behind it
    is_hidden: bool  # whether the mask hides it


def is_name(text: str) -> bool:
    """Return whether a text may name an array: of a file in an archive, printed on a terminal."""
    return bool(text) and text.isprintable() and not {*text} & {"/", "\\"}


@dataclass(frozen=True)
class ArraySpec:
    """A tensor as the manifest describes it; a dimension with a name is known at run time."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape, with the sizes that ``dims`` gives to names."""
        return tuple(dims[d] if isinstance(d, str) else d for d in self.shape)

    @property
    def names(self) -> set[str]:
        """The dimensions that are known at run time."""
        return {size for size in self.shape if isinstance(size, str)}

    def nbytes(self) -> int:
        """Bytes of the tensor, for each combination of its named dimensions."""
        fixed = (size for size in self.shape if isinstance(size, int))
        return math.prod(fixed) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class InputSpec(ArraySpec):
    """Input of a function, which must be given if it has no default."""

    default: int | None = None  # the value of all elements

    def __str__(self) -> str:
        return super().__str__() + ("" if self.default is None else f" = {self.default}")


@dataclass(frozen=True)
class BufferSpec(ArraySpec):
    """Buffer that calls of one generation share."""

    # The axis with a place for each position of the context, or for the last ones that are kept.
    positions: int | None = None


@dataclass(frozen=True)
class WeightSpec(ArraySpec):
    """A weight as it lies in its file.

    ``unpacked`` is its shape where that is not how it lies: ``[..., n, k]`` is stored as
    ``[..., blocks, k, columns]``, the rows of a block beside each other and the last block filled
    up, or as ``[..., blocks, steps, columns, terms]``, where several terms of a row are, too; with
    an ``encoding`` as ``[..., blocks, records of a row, bytes of a record]``.
    """

    offset: int = 0  # bytes from the start of the file
    unpacked: tuple[int, ...] | None = None
    encoding: str | None = None  # of ``RECORDS``, where it is quantized

    @property
    def logical(self) -> tuple[int, ...]:
        """The shape of the weight, however it lies."""
        return self.sizes({}) if self.unpacked is None else self.unpacked


@dataclass(frozen=True)
class TableSpec:
    """A weight of which rows are read by number, which compiled code does not check."""

    weight: str
    index: str  # the input that has the numbers; ``context`` where they are positions
    skipped: int = 0  # rows before that of number 0


@dataclass(frozen=True)
class EntrySpec:
    """A function of the model, with its arrays and its results in order."""

    function: str  # the name of its compiled function
    inputs: tuple[InputSpec, ...]
    outputs: tuple[ArraySpec, ...]
    state: bool  # whether it reads and writes the state
    least: Mapping[str, int] = field(default_factory=dict)  # sizes of named dimensions, if not 1
