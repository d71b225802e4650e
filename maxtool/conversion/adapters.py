"""LoRA adapters as GGUF: the factors of each change under the names of the base model's tensors.

The form is that of llama.cpp's ``convert_lora_to_gguf.py``: ``NAME.lora_a`` and ``NAME.lora_b``,
whose product, times ``adapter.lora.alpha`` over its rank, is added to the tensor NAME. Where an
adapter scales a change otherwise (rsLoRA, patterns of alpha and rank), ``lora_b`` is multiplied by
the difference. Only the configuration of the base model is needed, not its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.casting import widen
from maxtool.conversion.description import Description
from maxtool.conversion.factors import Factors, carried, zero
from maxtool.conversion.gguf_metadata import QUANTIZATION_VERSION
from maxtool.conversion.gguf_metadata import VERSION as GGML_VERSION
from maxtool.conversion.request import Request
from maxtool.dtype import DType
from maxtool.errors import InputError, MisshapenWeight, UsageError
from maxtool.recipe import (
    BoundRule,
    OutputTensor,
    Recipe,
    bind,
    declared_shapes,
    emissions,
    find_recipe,
    load_recipe,
    resolve_config,
    written_keys,
)
from maxtool.recipe.name_patterns import clashes, renamed
from maxtool.recipe.naming import GGUF_NAME
from maxtool.recipe.quantized_types import ARCHITECTURE
from maxtool.recipe.step import Shape
from maxtool.recipe.text_part import within
from maxtool.weights import Checkpoint, TensorInfo, open_checkpoint
from maxtool.weights.composite import CompositeTensor, View
from maxtool.weights.jsonfile import read_object
from maxtool.weights.lora import Adapter, MergedTensor, matched, open_adapter, unfit
from maxtool.weights.quantization_config import QUANTIZATION
from maxtool.weights.source_file import is_file, stamp

ALPHA = "lora_alpha"
# llama.cpp adds a change of rows that are looked up for this tensor alone, and reads its first
# factor with a row for each token.
EMBEDDING = "token_embd.weight"
FIRST, SECOND = "lora_a", "lora_b"


@dataclass(frozen=True)
class ConvertedAdapter:
    """An adapter in the names of GGUF.

    Attributes:
        recipe: The recipe of its base model.
        checkpoint: Its factors as tensors.
        description: The key/values of the file.
        base: What the base model was told from.
    """

    recipe: Recipe
    checkpoint: Checkpoint
    description: Description
    base: Path


@dataclass(frozen=True)
class Change:
    """The change of a tensor of GGUF, as changes of Hugging Face tensors make it.

    Attributes:
        emission: The tensor, as parameters make it.
        rules: For each of its parameters the rule by which these tensors make it.
        shapes: Their shapes.
        changes: The changes of those that change.
        alpha: What the file's scale is the quotient of, by the rank.
    """

    emission: OutputTensor
    rules: tuple[BoundRule, ...]
    shapes: Mapping[str, Shape]
    changes: Mapping[str, MergedTensor]
    alpha: float

    @property
    def sources(self) -> list[str]:
        """The names of the tensors that change, which are read."""
        names = dict.fromkeys(name for rule in self.rules for name in rule.sources)
        return [name for name in names if name in self.changes]

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The factors that are read."""
        changes = [self.changes[name] for name in self.sources]
        return tuple(info for change in changes for info in (change.first, change.second))

    def factors(self, view: View, rank: int) -> Factors:
        """The factors of the change; their product is scaled by ``alpha / rank``."""
        sources = {
            name: self._source(name, view, rank) for rule in self.rules for name in rule.sources
        }
        undone = []
        for rule, (_, steps) in zip(self.rules, self.emission.inputs, strict=True):
            selected = carried(rule.select, [sources[name] for name in rule.sources])
            selected = selected if rule.part is None else [selected[rule.part]]
            undone += carried(steps, carried(rule.rest, selected))
        return carried(self.emission.join, undone)[self.emission.index]

    def _source(self, name: str, view: View, rank: int) -> Factors:
        change = self.changes.get(name)
        if change is None:
            return zero(self.shapes[name])
        first, second = widen(view(change.first)), widen(view(change.second))
        scale = np.float32(change.scale * rank / self.alpha)
        factors = Factors(second if scale == 1 else second * scale, first)
        return factors.transposed if change.transposed else factors


@dataclass(frozen=True, slots=True)
class FactorTensor(CompositeTensor):
    """A factor of a change; file and offset are those of the first tensor that is read for it."""

    change: Change = field(kw_only=True)
    rank: int = field(kw_only=True)

    @property
    def parts(self) -> tuple[TensorInfo, ...]:
        """The tensors of the adapter that are read for it."""
        return self.change.parts

    def read(self, view: View) -> NDArray[Any]:
        """The factor; ``view`` gives the data of a tensor as it is stored."""
        pair = _as_stored(self.change.emission.name, self.change.factors(view, self.rank))
        return np.ascontiguousarray(pair[self.name.rpartition(".")[2]])


def converted_adapter(request: Request) -> ConvertedAdapter:
    """An adapter as the tensors and key/values of a GGUF file, planned from headers.

    Raises:
        UsageError: If the base model is not known, or is not a folder or file.
        ModelMismatch: If parts of the adapter fit no tensor; it lists them all.
    """
    adapter = open_adapter(request.source)
    if not np.float32(adapter.config[ALPHA]):
        raise InputError("lora_alpha is 0, which GGUF cannot say", file=request.source)
    path = _base_path(adapter, request)
    base = _opened(path)
    recipe = load_recipe(request.recipe) if request.recipe else find_recipe(base)
    recipe = within(recipe, base)
    resolved = resolve_config(recipe, base, ignore=request.ignore)
    shapes = declared_shapes(recipe, base, resolved.values)
    tensors = _tensors(_changes(adapter, recipe, resolved.values, shapes))
    notes = [*resolved.notes, f"the base model is that of {path}"]
    notes += [f"{name} is not compared with that of the base model" for name in adapter.beneath]
    checkpoint = Checkpoint(
        path=request.source,
        format="safetensors",
        files=adapter.checkpoint.files,
        tensors={tensor.name: tensor for tensor in tensors},
        metadata={},
        config=None,
        config_file=None,
        folder=request.source,
        notes=tuple(notes),
        seen={**adapter.seen, **base.seen},
    )
    keys = _keys(adapter, base, recipe, resolved.values, request)
    return ConvertedAdapter(recipe, checkpoint, Description(keys), path)


def _base_path(adapter: Adapter, request: Request) -> Path:
    if request.base is not None:
        return request.base
    said = adapter.config.get("base_model_name_or_path")
    if isinstance(said, str) and said and "\0" not in said and Path(said).is_dir():
        return Path(said)
    what = f"an adapter needs the configuration of its base model, which it calls {said!r:.200}"
    hint = "pass --base FOLDER with its config.json, or --base FILE.gguf"
    raise UsageError(what, file=request.source, hint=hint)


def _opened(path: Path) -> Checkpoint:
    """The base model: of a folder with config.json nothing else, otherwise a file's header."""
    file = path / "config.json"
    if not is_file(file):
        return open_checkpoint(path)
    before = stamp(file)
    # How its weights are quantized changes nothing here.
    config = {key: value for key, value in read_object(file).items() if key != QUANTIZATION}
    seen = {file: before}
    return Checkpoint(path, "safetensors", (), {}, {}, config, file, path, seen=seen)


def _changes(
    adapter: Adapter, recipe: Recipe, values: Mapping[str, Any], shapes: Mapping[str, Shape]
) -> list[Change]:
    """The changes of GGUF's tensors that an adapter makes, in the order of the adapter's."""
    named = {emission.name: emission for emission in emissions(recipe, "hf", values, shapes)}
    infos = {
        name: TensorInfo(name, DType.float32, emission.shape) for name, emission in named.items()
    }
    renames = recipe.rules["hf"].rename
    spelled = renamed(renames, {name: name for name in adapter.changed})
    others = {name: infos[own] for own, name in spelled.items() if own in infos}
    read, problems = matched(adapter, infos | others)
    problems += clashes(renames, read)
    changes = renamed(renames, read)
    written = emissions(recipe, "gguf", values, shapes)
    rules = partial(bind, recipe, "hf", values=values)
    every = [_change(emission, rules, infos, changes, adapter) for emission in written]
    made = [change for change in every if change.sources]
    used = {name for change in made for name in change.sources}
    problems += [
        f"{name}: GGUF has no place for its change" for name in changes if name not in used
    ]
    problems += [line for change in made for line in _misfits(change, values)]
    if problems:
        raise unfit(adapter, "the base model", problems)
    order = {name: index for index, name in enumerate(changes)}
    return sorted(made, key=lambda change: (order[change.sources[0]], change.emission.name))


def _change(
    emission: OutputTensor,
    rules: Any,  # noqa: ANN401 - bind, but for the parameter
    infos: Mapping[str, TensorInfo],
    changes: Mapping[str, MergedTensor],
    adapter: Adapter,
) -> Change:
    bound = tuple(rules(parameter=parameter) for parameter in emission.parameters)
    names = [name for rule in bound for name in rule.sources]
    shapes = {name: infos[name].shape for name in names if name in infos}
    return Change(emission, bound, shapes, changes, float(np.float32(adapter.config[ALPHA])))


def _misfits(change: Change, values: Mapping[str, Any]) -> list[str]:
    """Lines on why llama.cpp would not apply a change, if it would not."""
    name = change.emission.name
    embedded = [source for source in change.sources if _is_looked_up(change.changes[source])]
    if embedded and name != EMBEDDING:
        return [f"{embedded[0]}: llama.cpp changes no looked-up rows but those of {EMBEDDING}"]
    if name == EMBEDDING and values.get("tie_word_embeddings"):
        return [f"{change.sources[0]}: it is the head too, which llama.cpp does not change with it"]
    try:
        change.factors(_headers, 1)
    except MisshapenWeight as error:
        return [f"{change.sources[0]}: {error.what}"]
    return []


def _is_looked_up(change: MergedTensor) -> bool:
    return "lora_embedding_" in change.first.name


def _headers(info: TensorInfo) -> NDArray[Any]:
    """Zeros of a tensor's shape, for what does not depend on its values."""
    return np.zeros(info.shape, np.float32)


def _tensors(changes: Sequence[Change]) -> list[FactorTensor]:
    tensors = []
    for change in changes:
        factors, file = change.factors(_headers, 1), change.parts[0]
        for ending, array in _as_stored(change.emission.name, factors).items():
            name = f"{change.emission.name}.{ending}"
            where = (name, DType.float32, array.shape, None, file.file, file.offset)
            tensors.append(FactorTensor(*where, change=change, rank=factors.rank))
    return tensors


def _as_stored(name: str, factors: Factors) -> dict[str, NDArray[Any]]:
    """The two factors of a change by their endings, as llama.cpp reads them."""
    if name == EMBEDDING:  # a row of the first factor is looked up for each token
        return {FIRST: factors.left, SECOND: factors.right.T}
    return {FIRST: factors.right, SECOND: factors.left}


def _keys(
    adapter: Adapter,
    base: Checkpoint,
    recipe: Recipe,
    values: Mapping[str, Any],
    request: Request,
) -> dict[str, Any]:
    """The key/values that llama.cpp demands of an adapter, in the order of its converter."""
    architecture = (
        base.metadata.get(ARCHITECTURE) or written_keys(recipe, "gguf", values)[ARCHITECTURE]
    )
    return {
        ARCHITECTURE: architecture,
        "general.type": "adapter",
        "adapter.type": "lora",
        **({GGUF_NAME: request.name} if request.name else {}),
        "adapter.lora.alpha": np.float32(adapter.config[ALPHA]),
        QUANTIZATION_VERSION: GGML_VERSION,
    }
