"""The tensors of an output: which there are, in what order, of what type, and how they are made."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import Any, TypeAlias

import numpy as np

from maxtool.conversion.left_out_values import check_left_out
from maxtool.conversion.output_types import SourceTensor, choose, main_type
from maxtool.conversion.request import DIALECT, Request
from maxtool.dtype import DType
from maxtool.recipe import OutputTensor, Plan, computed_tensors, emissions, left_out
from maxtool.recipe.computed import names_of
from maxtool.recipe.quantized_types import QuantizedTypes, gguf_types
from maxtool.recipe.quantizing_notes import check_requantized, fallback_notes
from maxtool.recipe.step import Array
from maxtool.weights import TensorSpec
from maxtool.weights.names import first_of

NARROW = (DType.float16, DType.bfloat16)

# A tensor with how it is made, which tensor of the source it is, or what it holds where that
# follows from the configuration.
Origin: TypeAlias = OutputTensor | str | Array
TensorSource: TypeAlias = tuple[TensorSpec, Origin]


def planned_tensors(
    planned: Plan, request: Request
) -> tuple[list[TensorSource], list[str], QuantizedTypes]:
    """Return the tensors that a conversion writes, in order, and what is worth knowing of them.

    And how they are quantized, which is without types if they are not.
    """
    check_left_out(planned, DIALECT[request.target])
    shapes = {name: binding.shape for name, binding in planned.parameters.items()}
    emitted = emissions(planned.recipe, DIALECT[request.target], planned.config, shapes)
    emitted.sort(key=_order(planned, request))
    pairs = [(natural(planned, emission), emission) for emission in emitted]
    quantized = QuantizedTypes({}, [])
    if request.quantize is not None:
        quantized = gguf_types(planned, emitted, request.quantize)
    chosen = [choose(one, request, quantized.types.get(one.name)) for one, _ in pairs]
    specs = _narrowed(planned, request, chosen, emitted)
    notes = left_out(planned.recipe, DIALECT[request.target], planned.config, shapes)
    if request.quantize is not None:
        types = {name: one for name, one in quantized.types.items() if request.edits.selects(name)}
        notes += fallback_notes(types, strict=request.quantize.strict)
        notes += quantized.notes
    notes += _quantized_before([n for n, _ in pairs], specs, request)
    tensors = _with_computed(planned, request, list(zip(specs, emitted, strict=True)))
    return tensors, notes, quantized


def _with_computed(
    planned: Plan, request: Request, tensors: list[tuple[TensorSpec, OutputTensor]]
) -> list[TensorSource]:
    """Add the tensors computed from the configuration: first, or where the source has them."""
    dialect = DIALECT[request.target]
    computed = planned.recipe.computed[dialect]
    source = planned.checkpoint
    if planned.dialect != dialect:
        arrays = computed_tensors(computed, planned.config)
        made = map(_fixed, arrays.items())
        if dialect == "gguf":
            return [*made, *tensors]
        return _by_name([*tensors, *(_narrow(each, tensors) for each in made)])
    there = [name for each in computed for name in names_of(each, planned.tensors)]
    if dialect == "hf":
        own = ((name, planned.tensors[name]) for name in there)
        copied = [(TensorSpec(n, request.dtype or o.dtype, o.shape), o.name) for n, o in own]
        return _by_name([*tensors, *copied])
    kept = [_fixed((name, source.read(name).astype(DType.float32).data)) for name in there]
    order = {name: index for index, name in enumerate(source.tensors)}
    merged: list[TensorSource] = [*tensors, *kept]
    if kept:
        merged.sort(key=lambda pair: order.get(pair[0].name, len(order)))
    return merged


def _by_name(tensors: list[TensorSource]) -> list[TensorSource]:
    return sorted(tensors, key=lambda pair: pair[0].name)


def _narrow(
    made: tuple[TensorSpec, Array], tensors: list[tuple[TensorSpec, OutputTensor]]
) -> TensorSource:
    """A tensor that is made, in the type of the matrices if it fits that."""
    spec, array = made
    narrow = main_type([each for each, _ in tensors])
    if narrow not in NARROW or not isinstance(narrow, DType) or not _fits(array, narrow):
        return made
    return TensorSpec(spec.name, narrow, spec.shape), array.astype(narrow.to_numpy())


def _fixed(entry: tuple[str, Array]) -> tuple[TensorSpec, Array]:
    name, array = entry
    return TensorSpec(name, DType.from_numpy(array.dtype), array.shape), array


def _order(planned: Plan, request: Request) -> Callable[[OutputTensor], Any]:
    """The order of the output: by name; for GGUF that of the source's files, each by name."""
    if request.target != "gguf":
        return lambda emission: emission.name
    files = {file: index for index, file in enumerate(planned.checkpoint.files)}
    same = planned.dialect == "gguf"
    names = list(planned.checkpoint.tensors)
    if not same:
        names.sort(key=lambda name: (files[planned.checkpoint.tensors[name].file], name))
    order = {name: index for index, name in enumerate(names)}

    def key(emission: OutputTensor) -> tuple[int, int, str]:
        sources = planned.parameters[emission.parameters[0]].sources
        return max(order[source.name] for source in sources), emission.index, emission.name

    return key


def natural(planned: Plan, emission: OutputTensor) -> SourceTensor:
    """A tensor of the output as the source has it: its type, and whether its rows stay packed."""
    bindings = [planned.parameters[name] for name in emission.parameters]
    encodings = {binding.encoding for binding in bindings}
    dtypes = {binding.dtype for binding in bindings}
    packed = len(encodings) == 1 and emission.whole_rows([b.shape for b in bindings])
    return SourceTensor(
        name=emission.name,
        shape=emission.shape,
        dtype=next(iter(dtypes)) if len(dtypes) == 1 else DType.float32,
        encoding=next(iter(encodings)) if packed else None,
        blocks=any(source.encoding for binding in bindings for source in binding.sources),
    )


def _narrowed(
    planned: Plan, request: Request, specs: list[TensorSpec], emitted: list[OutputTensor]
) -> list[TensorSpec]:
    """Undo GGUF's widening of vectors: back to the type of the matrices, if all of them fit it."""
    narrow = main_type(specs)
    back = planned.dialect == "gguf" and request.target != "gguf" and request.dtype is None
    if not back or narrow not in NARROW or not isinstance(narrow, DType):
        return specs
    widened = [spec.dtype is DType.float32 and len(spec.shape) == 1 for spec in specs]
    if not all(_fits(plain(planned, emission), narrow) for emission in compress(emitted, widened)):
        return specs
    return [
        TensorSpec(spec.name, narrow, spec.shape) if wide else spec
        for spec, wide in zip(specs, widened, strict=True)
    ]


def _fits(array: Array, dtype: DType) -> bool:
    with np.errstate(all="ignore"):
        back = array.astype(dtype.to_numpy()).astype(array.dtype)
    return back.tobytes() == array.tobytes()


def _quantized_before(
    naturals: list[SourceTensor], specs: list[TensorSpec], request: Request
) -> list[str]:
    """Notes on what becomes of tensors that the source has in blocks, a line for each thing."""
    pairs = zip(naturals, specs, strict=True)
    edits = request.edits
    blocks = [(n, s) for n, s in pairs if n.blocks and edits.selects(s.name)]
    stay = [(n, s) for n, s in blocks if s.encoding and not edits.casts_tensor(s.name)]
    decoded = len(blocks) - len(stay)
    again = [after.name for before, after in stay if after.encoding is not before.encoding]
    notes = [f"{decoded} quantized tensors are decoded"] if decoded else []
    if again:
        check_requantized(again, request.quantize)
        what = "quantized before, and quantized again at a further loss"
        notes.append(f"{what}: {first_of(again, 1)}")
    return notes


def plain(planned: Plan, emission: OutputTensor) -> Array:
    """A tensor's elements, not packed, in the source's type."""
    return emission.apply(_inputs(planned, emission))


def is_rounded(planned: Plan, emission: OutputTensor) -> bool:
    """Return whether the recipe's operations round some of a tensor's values on their way."""
    exact = all(map(planned.is_exact, emission.parameters))
    return not exact or (emission.may_round and not emission.is_exact(_inputs(planned, emission)))


def _inputs(planned: Plan, emission: OutputTensor) -> list[Array]:
    """The parameters a tensor is made of, decoded, and of one type."""
    read = [planned.read(name) for name in emission.parameters]
    if len({data.dtype for data in read}) > 1:
        read = [data.astype(DType.float32) for data in read]
    return [d.astype(DType.float32).data if d.quantization_encoding else d.data for d in read]
