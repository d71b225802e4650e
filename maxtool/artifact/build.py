"""A compilation, planned from headers: what it takes, and whether it can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeGuard

from maxtool import architectures
from maxtool.architectures import (
    Architecture,
    Decoder,
    EncoderDecoder,
    Entry,
    TextEmbedder,
    graph_of,
)
from maxtool.architectures.image_model import PIXELS
from maxtool.architectures.image_text import ImageTextDecoder
from maxtool.architectures.speech import FEATURES
from maxtool.artifact import batch, cache_type, devices, original_model
from maxtool.artifact import check as parity
from maxtool.artifact.contents import Contents, NamedGraph, used_target
from maxtool.artifact.dual_encoder_facts import dual_encoder_facts
from maxtool.artifact.embedding_facts import embedding_facts
from maxtool.artifact.generation_facts import generation_facts
from maxtool.artifact.image_facts import image_facts, input_size
from maxtool.artifact.matrix_types import (
    DECODED,
    MatrixType,
    check_quantize,
    is_quantized,
    matrices,
    mixed_types,
    natural_dtype,
    reading,
    remarks,
)
from maxtool.artifact.original_dual_encoder_model import OriginalDualEncoderModel
from maxtool.artifact.original_image_model import OriginalImageModel
from maxtool.artifact.original_image_text_model import OriginalImageTextModel
from maxtool.artifact.original_model import OriginalModel
from maxtool.artifact.original_speech_model import OriginalSpeechModel, OriginalTextToTextModel
from maxtool.artifact.planned import Planned, check_place, target_of
from maxtool.artifact.quick_quantizing import quick_quantizing
from maxtool.artifact.request import CacheType, Request
from maxtool.artifact.speech_facts import speech_facts
from maxtool.artifact.weights import packing_note, tables_note
from maxtool.artifact.writing_facts import writing_facts
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.targets import Target
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError, UsageError
from maxtool.graph import Graph
from maxtool.quantization.scheme import files_read
from maxtool.recipe import Plan, Recipe, find_recipe, load_recipe, plan
from maxtool.recipe.fitted_tokenizer import model_tokenizer
from maxtool.recipe.load import files_of
from maxtool.recipe.naming import check_name, model_name
from maxtool.recipe.recipe_files import RECIPE_SUFFIX, is_shipped
from maxtool.recipe.schema import Tolerance
from maxtool.runtime.loader.recorded_checks import Runner
from maxtool.runtime.loader.specs import (
    DUAL_ENCODER,
    ENCODE,
    IMAGE,
    LOOK,
    TEXT_TO_TEXT,
    TRANSCRIBE,
)
from maxtool.tokenizer import Tokenizer
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.files_read import files_noted, named

# Positions that are made room for when none are asked for. Rotary tables and the cache are as long,
# and nobody fills a million positions by accident; configurations name any number.
USUAL_CONTEXT = 1 << 17

# What a model does by itself, by the entry that does it; others are called with arrays alone.
TASKS = {ENCODE: TEXT_TO_TEXT, "prefill": "generate", "embed": "embed"}
# The task of a model by what its entries take, where that is something else than text.
IDS = "input_ids"
TASKS_OF_INPUTS = {PIXELS: IMAGE, FEATURES: TRANSCRIBE}

# What runs the original of a model, by its task; of others a model of texts.
ORIGINALS: Mapping[object, Callable[..., Runner]] = {
    IMAGE: OriginalImageModel,
    DUAL_ENCODER: OriginalDualEncoderModel,
    TRANSCRIBE: OriginalSpeechModel,
    TEXT_TO_TEXT: OriginalTextToTextModel,
}

# The architecture of models that write texts unless something says how they make vectors.
DECODER = "decoder"

# Kinds of target whose steps run without the host between them, which draws the tokens otherwise.
DRAWING = ("cuda",)


@dataclass
class Build(Planned):
    """A compilation by a recipe that has been planned.

    Attributes:
        request: What was asked for.
        plan: The checkpoint matched with its recipe.
        types: The types of the matrices where they may differ.
        module: The architecture.
        graphs: Its traced entries.
    """

    request: Request
    plan: Plan
    types: Mapping[str, MatrixType]
    module: Architecture
    graphs: dict[Entry, Graph]

    def quick_reading(self) -> AbstractContextManager[None]:
        """Have matrices quantized by compiled code, where there are many."""
        return quick_quantizing(self.plan, self.types)

    def compare(self, folder: Path) -> parity.PassedCheck:
        """Compare with the reference, or record what it gives for the machine that this is for.

        The tolerance is the recipe's for the type that most was lost by: see :attr:`_rounded`. What
        quantized weights are multiplied with, and what a quantized cache rounds, is allowed for
        beside it (:mod:`.allowed_error`).
        """
        whole = replace(self.contents, functions=self._whole)
        tolerance = max(map(self._tolerance, self._rounded), key=lambda one: one.rtol)
        trials = parity.trials_of(whole, tolerance, self._reference, self._exact)
        found = parity.check(folder, trials, here=self.target.host, observe=self.observe)
        compared = self.request.against == parity.TRANSFORMERS
        return replace(found, is_verified=compared or is_shipped(self.plan.recipe.file))

    @property
    def kv_dtype(self) -> CacheType | None:
        """The type of keys and values in a decoder's cache; None for other models."""
        if not keeps(self.module):
            return None
        return cache_type.type_of(self.module.form)

    @property
    def _rounded(self) -> set[DType]:
        """The narrowest types that matrices, or what they are multiplied with, and the cache have.

        A key ``W x`` rounded with the unit roundoff ``u`` is off by ``u |W x|``, and by up to
        ``u |W| |x|`` with a matrix so rounded. So what a recipe allows for matrices of a type
        bounds a cache of it, too.
        """
        cached = self.kv_dtype
        return {self._narrowest, cached if isinstance(cached, DType) else DType.float32}

    def _tolerance(self, dtype: DType) -> Tolerance:
        recipe = self.plan.recipe
        if (tolerance := recipe.check.get(dtype.value)) is None:
            what = f"the recipe has no tolerance for {dtype.value}"
            raise ConfigurationError(what, file=recipe.file)
        return tolerance

    @property
    def _narrowest(self) -> DType:
        """The narrowest type that values were rounded to; float32 if none were."""
        if not self.types:
            dtype = self.contents.dtype or DType.float32
            narrower = dtype is not natural_dtype(self.plan) or self.target.kind == "cuda"
            return dtype if narrower else DType.float32
        parameters = self.plan.parameters
        rounded = {
            chosen.dtype
            for name, chosen in self.types.items()
            if chosen.encoding or chosen.dtype is not parameters[name].dtype
        }
        return DECODED if DECODED in rounded else DType.float32

    @property
    def _reference(self) -> parity.Reference:
        if self.request.against == parity.GRAPH:
            return parity.GRAPHS
        kind = ORIGINALS.get(self.contents.identity["task"], OriginalModel)
        if isinstance(self.module, ImageTextDecoder):
            kind = OriginalImageTextModel
        make = partial(kind, checkpoint=self.plan.checkpoint)
        return parity.Reference(parity.TRANSFORMERS, make)

    @property
    def _whole(self) -> tuple[NamedGraph, ...]:
        """The functions of one device that runs the whole model."""
        if self.request.devices == 1:
            return self.contents.functions
        # Not those of ``graphs``, whose caches are a part's.
        return self._traced()

    @property
    def _exact(self) -> Contents | None:
        """The contents with a cache that rounds nothing; None if that is what there is."""
        if not isinstance(self.module, Decoder) or not self.module.form.is_quantized:
            return None
        with self.module.unrounded():
            return replace(self.contents, functions=self._traced())

    def _traced(self) -> tuple[NamedGraph, ...]:
        """The functions of the module as it stands now."""
        entries = _entries(self.module, self.plan.recipe)
        return tuple(named_graph(entry, graph_of(self.module, entry)) for entry in entries)


def prepare(request: Request) -> Build:
    """Plan a compilation from headers, and check all that can be checked before it is run.

    Raises:
        UsageError: If the request contradicts itself, or the output is in the way.
        InputError: If the source cannot be read.
        ModelMismatch: If no recipe recognises the source, or it does not fit its recipe.
        MachineLacks: If nothing can compile or link the artifact, or it is to be for the GPU here
            and there is none, or transformers is not here to be compared with.
    """
    with files_noted() as read:
        return _prepared(request, read)


def _prepared(request: Request, read: Mapping[Path, None]) -> Build:
    """The compilation; ``read`` has the files that were opened for it."""
    check_name(request.name)
    target = target_of(request)
    check_quantize(request, target)
    batch.check_request(request, target)
    cache_type.check_request(request)
    checkpoint = open_checkpoint(request.source)
    check_place(request, (*checkpoint.protected, *files_read(request.quantize)))
    recipe = load_recipe(request.recipe) if request.recipe else find_recipe(checkpoint)
    planned = plan(recipe, checkpoint, ignore=request.ignore)
    checkpoint = planned.checkpoint
    planned.check()
    if request.check and request.against == parity.TRANSFORMERS:
        original_model.require(checkpoint)
    dtype = request.dtype or default_dtype(planned, target)
    module, told = _module(request, planned, dtype, target)
    types, remarked = _typed(request, planned, target, module)
    with devices.split(module, request.devices):
        graphs = {entry: graph_of(module, entry) for entry in _entries(module, recipe)}
    tokenizer, cut = model_tokenizer(planned)
    notes = [*checkpoint.notes, *planned.notes, *cut, *told, *remarked]
    seen, noted = image_facts(planned, module)
    heard, noted_of_speech = speech_facts(planned, module)
    written, noted_of_writing = writing_facts(planned, task_of(graphs), tokenizer)
    left_out, noted_of_texts = generation_facts(planned, task_of(graphs))
    notes += [*noted, *noted_of_speech, *noted_of_writing, *noted_of_texts]
    if tokenizer is None and task_of(graphs) != IMAGE:
        notes.append("the source has no tokenizer: the artifact takes token ids, not text")
    contents = _contents(request, planned, target, dtype, types, module, graphs, tokenizer)
    read_with = {**dual_encoder_facts(planned, module, tokenizer), **written}
    facts = {
        **contents.facts,
        **embedding_facts(planned, graphs, tokenizer),
        **seen,
        **heard,
        **read_with,
        **left_out,
    }
    contents = replace(contents, facts=facts, sources=_sources(read, checkpoint))
    notes += [*packing_note(contents), *tables_note(contents)]
    made = Build(request, contents, checkpoint, notes, planned, types, module, graphs)
    made.check_machine()
    batch.check_memory(request.batch, contents.state_bytes + made.weight_bytes, target)
    return made


def _contents(
    request: Request,
    planned: Plan,
    target: Target,
    dtype: DType,
    types: Mapping[str, MatrixType],
    module: Architecture,
    graphs: Mapping[Entry, Graph],
    tokenizer: Tokenizer | None,
) -> Contents:
    """The contents of the artifact."""
    recipe = planned.recipe
    encodings = {name: each.encoding for name, each in types.items() if each.encoding}
    return Contents(
        functions=tuple(named_graph(entry, graph) for entry, graph in graphs.items()),
        target=used_target(target, encodings),
        read=reading(planned, types),
        identity={
            "name": request.name or model_name(planned),
            "recipe": recipe.name,
            "architecture": recipe.architecture,
            "task": task_of(graphs),
        },
        dtype=_shared_dtype(types) if types else dtype,
        encodings=encodings,
        facts=module.facts,
        context=module.context,
        positions=module.positions if isinstance(module, architectures.Caching) else {},
        turns=module.turns if isinstance(module, architectures.Turning) else (),
        limits=module.limits,
        tables=module.tables if isinstance(module, architectures.Indexed) else (),
        devices=request.devices,
        tokenizer=tokenizer,
        origin=request.origin,
        recipe_files=files_of(recipe),
    )


def task_of(entries: Iterable[Entry]) -> str | None:
    """The task of a model of these entries; None if it is called with arrays alone."""
    listed = list(entries)
    inputs = {name for entry in listed if entry.name != LOOK for name in entry.inputs}
    if inputs >= {PIXELS, IDS}:
        return DUAL_ENCODER
    for name in TASKS_OF_INPUTS.keys() & inputs:
        return TASKS_OF_INPUTS[name]
    return next(filter(None, (TASKS.get(entry.name) for entry in listed)), None)


def _sources(read: Iterable[Path], checkpoint: Checkpoint) -> dict[str, Path]:
    """The files that were read, without recipes: of these many are looked at, and one is used."""
    files = (path for path in read if path.suffix != RECIPE_SUFFIX)
    return named([*files, *checkpoint.seen], checkpoint.path)


def _shared_dtype(types: Mapping[str, MatrixType]) -> DType | None:
    """The type of all matrices that are not quantized; None where there are several, or none."""
    plain = {chosen.dtype for chosen in types.values() if not chosen.stays}
    return plain.pop() if len(plain) == 1 else None


def keeps(module: Architecture) -> TypeGuard[Decoder | EncoderDecoder]:
    """Return whether a model keeps a cache of the texts that it writes."""
    return isinstance(module, Decoder | EncoderDecoder) and not isinstance(module, TextEmbedder)


def named_graph(entry: Entry, graph: Graph) -> NamedGraph:
    """A traced entry of an architecture as a function of an artifact."""
    names = (tuple(entry.inputs), entry.outputs, tuple(entry.state))
    return NamedGraph(
        entry.name, entry.name, graph, *names, defaults=entry.defaults, usual=entry.usual
    )


def _entries(module: Architecture, recipe: Recipe) -> list[Entry]:
    """Return the entries of an architecture that a recipe offers, as the module stands now."""
    return [each for each in module.entries() if (each.follows or each.name) in recipe.entries]


def default_dtype(planned: Plan, target: Target) -> DType:
    """The type of the matrices where all have one type and none is asked for.

    It is the one that loses nothing. On GPUs quantized matrices are float16: their tensor cores
    multiply that, and few of the values that were quantized need more.
    """
    if target.kind == "cuda" and any(map(is_quantized, matrices(planned))):
        return DType.float16
    return natural_dtype(planned)


def _typed(
    request: Request, planned: Plan, target: Target, module: Architecture
) -> tuple[dict[str, MatrixType], list[str]]:
    """The types of the matrices where they may differ; the module's weights get them. And notes."""
    if not _may_mix(request, planned):
        return {}, []
    if target.kind != "cpu":
        return {}, [f"quantized matrices are decoded to {default_dtype(planned, target).value}"]
    graphs = [graph_of(module, entry) for entry in _entries(module, planned.recipe)]
    storage = LoweringPlan(graphs, target).storage
    readable = {name: each.readable(target.kind) for name, each in storage.items()}
    types, notes = mixed_types(planned, request.quantize, readable)
    weights = module.raw_state_dict()
    for name, chosen in types.items():
        weights[name].dtype = chosen.dtype
        weights[name].quantization_encoding = chosen.encoding if chosen.stays else None
    return types, [*notes, *remarks(types)]


def _may_mix(request: Request, planned: Plan) -> bool:
    """Return whether matrices are to be stored in blocks where they can be."""
    if request.dtype is not None:
        return False
    return request.quantize is not None or any(map(is_quantized, matrices(planned)))


def _module(
    request: Request, planned: Plan, dtype: DType, target: Target
) -> tuple[Architecture, list[str]]:
    """The architecture, for as many positions as were asked for or are usual; and what to tell."""
    config = {**planned.config, **_chosen(request, planned)}
    is_wide = dtype is DType.float32 and not _may_mix(request, planned)
    form = cache_type.cache_layout(request, dtype, target, is_wide=is_wide)
    draws = target.kind in DRAWING and request.devices == 1  # several meet on the host anyway
    context, told = _context(request, planned)
    name = planned.recipe.architecture
    module = architectures.build(name, config, dtype, context, form, draws)
    if request.kv_dtype is not None and not keeps(module):
        raise UsageError(f"--kv-dtype is for models that write texts, not {planned.recipe.name}")
    if keeps(module) and isinstance(module, Decoder):
        cache_type.check_positions(module, target)
        cache_type.check_heads(module)
        cache_type.check_index(module)
    else:
        cache_type.check_source(module)
        batch.refuse(request, planned.recipe.name)
    return module, told


def _context(request: Request, planned: Plan) -> tuple[int | None, list[str]]:
    """Return the positions to build for, None for the architecture's own; and what to tell."""
    own = planned.context
    if request.context is not None:
        if own is None:
            raise UsageError(f"--context is for models of sequences, not {planned.recipe.name}")
        _check_context(request.context, own, planned)
    elif own is not None and own > USUAL_CONTEXT:
        cut = f"room for {USUAL_CONTEXT} of the model's {own} positions"
        return USUAL_CONTEXT, [f"{cut}: --context N makes room for more"]
    return request.context, []


def _check_context(asked: int, usual: int, planned: Plan) -> None:
    """Refuse positions that the model cannot have, and say why it has no more.

    An encoder's own context may be where its texts are cut, which is less than it can have.
    """
    trained = planned.config.get("context_length", usual)
    largest = max(usual, trained)
    if 1 <= asked <= largest:
        return
    scaled = f", which its scaling of rotary angles stretches to {largest}"
    why = f"the model was trained for {trained} positions{scaled if largest > trained else ''}"
    raise UsageError(
        f"--context {asked} is not from 1 to {largest}: {why}",
        file=planned.checkpoint.config_file or planned.checkpoint.path,
        hint="longer texts need a checkpoint that was trained for them",
    )


def _chosen(request: Request, planned: Plan) -> dict[str, object]:
    """The fields of the configuration that were asked for."""
    asked: dict[str, object] = {"pooling": request.pooling, "normalize": request.normalize}
    asked["input_size"] = input_size(request, planned)
    chosen = {name: value for name, value in asked.items() if value is not None}
    if unknown := [name for name in chosen if name not in planned.recipe.fields]:
        what = f"--{unknown[0]} is for encoders and decoders, not {planned.recipe.name}"
        raise UsageError(what)
    told = {**planned.config, **chosen}
    pools = told.get("pooling") is not None or told.get("bidirectional")
    if request.normalize is not None and planned.recipe.architecture == DECODER and not pools:
        what = "--normalize is for models that make vectors, and this one writes texts"
        raise UsageError(what, hint="with --pooling it makes vectors")
    return chosen
