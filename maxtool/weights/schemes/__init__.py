"""Quantized Hugging Face checkpoints: tensors that mean one weight, seen as that weight.

``quantization_config`` names the method, whose file says which endings of names belong together,
what they mean, and how they are decoded. Recipes see the weight by its plain name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from maxtool.errors import MalformedFile
from maxtool.weights.composite import View
from maxtool.weights.schemes import (
    awq,
    bitnet,
    bitsandbytes,
    compressed_tensors,
    gptq,
    mxfp4,
    torchao,
)
from maxtool.weights.schemes.scheme import Layout, Misfit, QuantizedTensor, Unsupported, quantized
from maxtool.weights.tensor_info import TensorInfo

Said = Mapping[str, Any]


def _by_config(read: Callable[[Said], tuple[Layout, ...]]) -> Callable[..., tuple[Layout, ...]]:
    """A method of which the configuration says all."""
    return lambda config, _metadata: read(config)


# Each is given the configuration and the files' own metadata.
METHODS: Mapping[str, Callable[[Said, Mapping[str, object]], tuple[Layout, ...]]] = {
    "gptq": _by_config(gptq.layouts),
    "awq": _by_config(awq.layouts),
    "compressed-tensors": _by_config(compressed_tensors.layouts),
    "bitsandbytes": _by_config(bitsandbytes.layouts),
    "bitnet": _by_config(bitnet.layouts),
    "mxfp4": _by_config(mxfp4.layouts),
    "torchao": torchao.layouts,
}
# The keys of bitsandbytes' first configurations, which do not name their method.
UNNAMED = ("load_in_4bit", "load_in_8bit")
# Bytes of a tensor that is read to know a weight's shape.
MAX_EARLY = 1 << 12

Tensors = Mapping[str, TensorInfo]


def layouts(config: Said, metadata: Mapping[str, object]) -> tuple[Layout, ...]:
    """Read a ``quantization_config``, and what the files' metadata say of it.

    Raises:
        Unsupported: If its method or some key of it is not supported; it says what is.
    """
    method = config.get("quant_method")
    if method is None and any(config.get(key) is True for key in UNNAMED):
        method = "bitsandbytes"
    read = METHODS.get(method) if isinstance(method, str) else None
    if read is None:
        raise Unsupported(f"quant_method: supported are {', '.join(METHODS)} and 8-bit floats")
    return read(config, metadata)


def seen_as_weights(tensors: Tensors, forms: tuple[Layout, ...], view: View | None) -> Tensors:
    """Tensors in their order, those that make one weight as that weight.

    Args:
        tensors: As the files have them.
        forms: How weights may be stored.
        view: Reads the small tensors that shapes depend on; ``None`` if only headers are at hand,
            and then weights that need them are shown as they are stored.

    Raises:
        MalformedFile: If tensors that belong together are missing or misfit; it lists them all.
    """
    weights: list[QuantizedTensor] = []
    problems: list[str] = []
    owners: dict[str, TensorInfo] = {}
    for module, form in _modules(tensors, forms):
        if form.early and view is None:
            continue
        try:
            weight = _weight(tensors, module, form, view)
        except Misfit as error:
            problems.append(f"{module}: {error}")
            continue
        weights.append(weight)
        owners |= {part.name: weight for part in weight.parts}
    problems += [f"{w.name}: is there twice" for w in weights if _twice(w, tensors)]
    if problems:
        what = "the tensors of quantized weights do not fit each other"
        raise MalformedFile(what, file=next(iter(tensors.values())).file, problems=problems)
    shown = (owners.get(name, info) for name, info in tensors.items())
    return {info.name: info for info in shown}


def _modules(tensors: Tensors, forms: tuple[Layout, ...]) -> Iterator[tuple[str, Layout]]:
    """The modules with quantized weights, and the first form that each has the anchor of."""
    for name in tensors:
        for number, form in enumerate(forms):
            module = name.removesuffix(form.anchor)
            earlier = any(f"{module}{other.anchor}" in tensors for other in forms[:number])
            if name.endswith(form.anchor) and not earlier:
                yield module, form


def _weight(tensors: Tensors, module: str, form: Layout, view: View | None) -> QuantizedTensor:
    """The weight of a module, or what is wrong with it."""
    missing = [ending for ending in form.needed if f"{module}{ending}" not in tensors]
    if missing:
        raise Misfit(f"lacks {' and '.join(ending.lstrip('._') for ending in missing)}")
    endings = (*form.needed, *form.optional)
    parts = {end: tensors[module + end] for end in endings if module + end in tensors}
    early = {}
    for ending in form.early:
        if parts[ending].nbytes > MAX_EARLY or view is None:
            raise Misfit(f"{parts[ending].name} has {parts[ending].nbytes} bytes")
        early[ending] = view(parts[ending])
    name = f"{module}{form.weight}"
    return quantized(name, parts, parts[form.numbers], form.meaning(parts, early))


def _twice(weight: QuantizedTensor, tensors: Tensors) -> bool:
    """Return whether the file has another tensor of a weight's name."""
    return weight.name in tensors and all(part.name != weight.name for part in weight.parts)
