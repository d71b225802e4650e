"""Tensors that are not parameters but say something of the configuration, in both directions.

GGUF keeps the rotary frequencies' factors so: those of LongRoPE as they are, those of Llama 3.1 as
what its formula gives for each frequency. Hugging Face keeps numbers of each layer so, a tensor for
each, of which GGUF has a list among its keys: the name has ``{layer}`` then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.recipe.name_patterns import Pattern
from maxtool.recipe.schema import Computed
from maxtool.weights import Checkpoint, TensorInfo

Values = Mapping[str, Any]
Vector = NDArray[np.float32]
MAX_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class TensorCodec:
    """A row of the table."""

    fields: tuple[str, ...]  # what it may say of a tensor, besides the field it is given
    make: Callable[[Computed, Values], Vector]
    # The fields from the tensor, and from those that are known already.
    read: Callable[[Computed, Vector, Values], dict[str, Any]]
    whole: tuple[str, ...] = ()  # fields that the tensor says, so that no key needs to
    needs: tuple[str, ...] = ()  # fields that must be known before it is read
    holds_field: bool = False  # whether it holds a field, which the recipe names
    by_layer: tuple[int, ...] | None = None  # the shape of a layer's part, if each has its own


def _numbers(array: Vector) -> tuple[float, ...]:
    """Numbers, each float32 as the shortest decimal that stands for it."""
    return tuple(float(str(number)) for number in array)


LLAMA3 = ("rope_factor", "rope_low_freq_factor", "rope_high_freq_factor", "rope_original_context")
LONGROPE = ("rope_long_factors", "rope_short_factors", "rope_attention_factor")


def llama3_factors(values: Values) -> Vector:
    """Divisors of the rotary frequencies, in float32: ``[rotary_dim / 2]``.

    Frequencies whose wavelength is short stay, long ones are divided by ``rope_factor``, and there
    is a smooth step between: https://github.com/meta-llama/llama-models, ``apply_scaling``.
    """
    factor, low, high, original = (values[name] for name in LLAMA3)
    context = original or values["context_length"]
    dim = values.get("rotary_dim") or values["head_dim"]
    one, low, high, factor = (np.float32(number) for number in (1, low, high, factor))
    # Rounded after each step as llama.cpp's converter does, so that the bytes are the same.
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    powers = (float(values["rope_theta"]) ** exponents.astype(np.float64)).astype(np.float32)
    wavelengths = np.float32(2 * math.pi) / (one / powers)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        smooth = (np.float32(context) / wavelengths - low) / (high - low)
        between = one / ((one - smooth) / factor + smooth)
    long = np.where(wavelengths > context / low, factor, between)
    return np.asarray(np.where(wavelengths < context / high, one, long), np.float32)


def _read_llama3(tensor: Computed, array: Vector, values: Values) -> dict[str, Any]:
    """The parameters that give these factors; where there are none, the factors themselves."""
    dim = values.get("rotary_dim") or values["head_dim"]
    if len(array) * 2 != dim:
        raise ValueError(f"needs {dim // 2} elements, one for each frequency, found {len(array)}")
    if np.all(array == 1):
        return {"rope_scaling": "none"}
    for context, high in product(CONTEXTS, (4.0, 1.0)):
        found = dict(zip(LLAMA3, (float(str(array.max())), 1.0, high, context), strict=True))
        if np.allclose(llama3_factors({**values, **found}), array, rtol=1e-5, atol=0):
            return {**tensor.when, **found}
    return {
        "rope_scaling": "longrope",
        "rope_attention_factor": 1.0,
        "rope_original_context": values["context_length"],
        **dict.fromkeys(("rope_long_factors", "rope_short_factors"), _numbers(array)),
    }


def _by_layer(shape: tuple[int, ...]) -> TensorCodec:
    """A codec of a number of each layer, in a tensor of that shape."""

    def read(tensor: Computed, array: Vector, values: Values) -> dict[str, Any]:
        if len(array) != (layers := values["n_layers"]):
            raise ValueError(f"needs one for each of {layers} layers, found {len(array)}")
        return {tensor.field: _numbers(array), **tensor.when}

    def make(tensor: Computed, values: Values) -> Vector:
        return np.asarray(values[tensor.field], np.float32).reshape(-1, *shape)

    return TensorCodec((), make, read, needs=("n_layers",), holds_field=True, by_layer=shape)


# Trained context lengths that are tried; published models have 8192.
CONTEXTS = (8192, *(1 << power for power in range(4, 21)))


def proportional_factors(_tensor: Computed, values: Values) -> Vector:
    """Divisors of frequencies, of which the first are rotated and others, by 1e30, stay."""
    pairs = values["head_dim"] // 2
    factors = np.full(pairs, STAYING, np.float32)
    factors[: values["rope_pairs"]] = values["rope_factor"] or 1.0
    return factors


def _read_proportional(tensor: Computed, array: Vector, values: Values) -> dict[str, Any]:
    """The number of pairs that are rotated, and what their frequencies are divided by."""
    dim = values["head_dim"]
    if len(array) * 2 != dim:
        raise ValueError(f"needs {dim // 2} elements, one for each frequency, found {len(array)}")
    turned = int(np.count_nonzero(array < STAYING))
    if np.any(array[:turned] != array[0]) or np.any(array[turned:] < STAYING):
        raise ValueError("needs one factor for the first frequencies, and 1e30 for others")
    factor = None if turned == 0 or array[0] == 1 else float(str(array[0]))
    return {**tensor.when, "rope_pairs": turned, "rope_factor": factor}


STAYING = np.float32(1e30)
PROPORTIONAL = ("rope_pairs", "rope_factor")


# --- the table -----------------------------------------------------------------------------------

TENSOR_CODECS: Mapping[str, TensorCodec] = {
    "floats": TensorCodec(
        (),
        lambda tensor, values: np.asarray(values[tensor.field], np.float32),
        lambda tensor, array, _values: {tensor.field: _numbers(array), **tensor.when},
        holds_field=True,
    ),
    "number_by_layer": _by_layer(()),
    "vector_by_layer": _by_layer((1,)),
    "llama3": TensorCodec(
        ("rope_scaling", *LLAMA3, *LONGROPE),
        lambda _tensor, values: llama3_factors(values),
        _read_llama3,
        LLAMA3,
        ("context_length", "head_dim", "rope_theta"),
    ),
    "proportional": TensorCodec(
        PROPORTIONAL, proportional_factors, _read_proportional, PROPORTIONAL, ("head_dim",)
    ),
}


@dataclass
class Findings:
    """Values that a checkpoint's tensors say of its configuration."""

    arrays: Sequence[tuple[Computed, Vector]]
    _read: dict[str, dict[str, Any]] = field(default_factory=dict)

    def say(self, name: str, values: Values) -> tuple[str, Any] | None:
        """The tensor that says a field, and what it says; None if none does.

        ``values`` are the fields known so far; MisshapenWeight if the tensor does not fit those.
        """
        for tensor, array in self.arrays:
            if name in may_say(tensor):
                said = self._fields(tensor, array, values)
                if said.get(name) is not None:
                    return tensor.tensor, said[name]
        return None

    def _fields(self, tensor: Computed, array: Vector, values: Values) -> dict[str, Any]:
        if tensor.tensor not in self._read:
            try:
                self._read[tensor.tensor] = TENSOR_CODECS[tensor.codec].read(tensor, array, values)
            except ValueError as error:
                raise MisshapenWeight(str(error), tensor=tensor.tensor) from None
        return self._read[tensor.tensor]


def found_in(
    needed: Sequence[Computed], checkpoint: Checkpoint, tensors: Mapping[str, TensorInfo]
) -> Findings:
    """Read such tensors from a checkpoint, whose ``tensors`` have the names that a recipe has.

    Each is a short list of positive numbers, or a number of each layer.
    """
    found = ((tensor, names_of(tensor, tensors)) for tensor in needed)
    return Findings([(t, _values(t, names, checkpoint, tensors)) for t, names in found if names])


def names_of(tensor: Computed, names: Iterable[str]) -> list[str]:
    """Return the names that mean a tensor: one at most, or one for each layer in their order."""
    if TENSOR_CODECS[tensor.codec].by_layer is None:
        return [name for name in names if name == tensor.tensor]
    pattern = Pattern(tensor.tensor)
    layers = {name: match["layer"] for name in names if (match := pattern.match(name))}
    return sorted(layers, key=layers.__getitem__)


def _values(
    tensor: Computed,
    names: Sequence[str],
    checkpoint: Checkpoint,
    tensors: Mapping[str, TensorInfo],
) -> Vector:
    if TENSOR_CODECS[tensor.codec].by_layer is None:
        array = _vector(tensors[names[0]], checkpoint, MAX_ELEMENTS)
        if not np.all(array > 0):
            raise MisshapenWeight("holds no factors", file=checkpoint.path, tensor=names[0])
        return array
    pattern = Pattern(tensor.tensor)
    for layer, name in enumerate(names):
        if name != (needed := pattern.name({"layer": layer})):
            raise ModelMismatch(f"{needed} is missing", file=checkpoint.path)
    return np.concatenate([_vector(tensors[name], checkpoint, 1) for name in names])


def _vector(info: TensorInfo, checkpoint: Checkpoint, most: int) -> Vector:
    """The numbers of a tensor that has ``most`` of them or fewer; a single one has any shape."""
    dims = len(info.shape) <= 1 or most == 1
    if not dims or not 0 < math.prod(info.shape) <= most:
        what = f"needs one dimension of at most {most}, found {list(info.shape)}"
        raise MisshapenWeight(what, file=checkpoint.path, tensor=info.name)
    array = np.asarray(checkpoint.read(info.name).astype(DType.float32).data, np.float32)
    if not np.all(np.isfinite(array)):
        raise MisshapenWeight("holds no factors", file=checkpoint.path, tensor=info.name)
    return array.reshape(-1)


def may_say(tensor: Computed) -> tuple[str, ...]:
    """The fields that a tensor may say."""
    own = (tensor.field,) if tensor.field else ()
    return (*own, *tensor.when, *TENSOR_CODECS[tensor.codec].fields)


# --- writing -------------------------------------------------------------------------------------


def said_by_tensors(
    tensors: Sequence[Computed], values: Values
) -> tuple[frozenset[str], frozenset[str]]:
    """Fields that the tensors of one dialect say so that no key does, and that a key may say."""
    made = [tensor for tensor in tensors if _is_made(tensor, values)]
    whole = {name for t in made for name in (t.field, *TENSOR_CODECS[t.codec].whole) if name}
    return frozenset(whole), frozenset(name for tensor in made for name in tensor.when)


def computed_tensors(tensors: Sequence[Computed], values: Values) -> dict[str, Vector]:
    """The tensors of one dialect that follow from a configuration, by name."""
    made = [tensor for tensor in tensors if _is_made(tensor, values)]
    return {name: array for tensor in made for name, array in _arrays(tensor, values)}


def _arrays(tensor: Computed, values: Values) -> Iterator[tuple[str, Vector]]:
    codec = TENSOR_CODECS[tensor.codec]
    array = codec.make(tensor, values)
    if codec.by_layer is None:
        yield tensor.tensor, array
        return
    pattern = Pattern(tensor.tensor)
    for layer in range(len(array)):
        yield pattern.name({"layer": layer}), array[layer, ...]


def _is_made(tensor: Computed, values: Values) -> bool:
    own = not tensor.field or values.get(tensor.field) is not None
    return own and all(values.get(name) == wanted for name, wanted in tensor.when.items())
