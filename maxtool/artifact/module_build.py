"""A compilation of a user's module, planned: its entries traced, its weights found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

from maxtool.artifact import module_weights
from maxtool.artifact.contents import Contents, NamedGraph, Read, used_target
from maxtool.artifact.input_types import FORWARD, EntrySpec
from maxtool.artifact.module_weights import ModuleWeights
from maxtool.artifact.planned import Planned, check_place, target_of
from maxtool.artifact.pure_graphs import pure_function
from maxtool.artifact.request import ModuleRequest
from maxtool.artifact.user_code import imports_beside, user_code
from maxtool.artifact.user_imports import note_imports
from maxtool.artifact.user_module import GATHERING, AnyModule, load_module
from maxtool.dtype import DType
from maxtool.errors import MissingWeight, ModelMismatch, UsageError
from maxtool.graph import Tensor, TensorType
from maxtool.nn import Module, tree
from maxtool.nn.called import signature_of
from maxtool.nn.eager.module import Module as EagerModule
from maxtool.nn.leaf_names import result_names
from maxtool.nn.pytree import flatten
from maxtool.nn.tracing import trace
from maxtool.nn.weight_binding import bound_data
from maxtool.quantization import QuantizationEncoding
from maxtool.recipe.naming import check_name
from maxtool.weights import Checkpoint, open_checkpoint
from maxtool.weights.files_read import files_noted, named
from maxtool.weights.names import did_you_mean
from maxtool.weights.weight_data import WeightData

SYMBOL = "entry_"
"""Beginning of the names of compiled functions: no kernel's name begins so."""
FORWARD_SYMBOL = f"{SYMBOL}{FORWARD}"


@dataclass
class ModuleBuild(Planned):
    """A compilation of a user's module that has been planned, and fits."""

    request: ModuleRequest


def prepare_module(request: ModuleRequest) -> ModuleBuild:
    """Plan a compilation of a user's module: its file is executed, and the module traced."""
    with files_noted() as read:
        return _prepared(request, read)


def _prepared(request: ModuleRequest, read: Mapping[Path, None]) -> ModuleBuild:
    """The compilation; ``read`` has the files that were opened for it."""
    check_name(request.name)
    target = target_of(request)
    checkpoint = None if request.weights is None else open_checkpoint(request.weights)
    file = request.module.file
    check_place(request, (file, *(checkpoint.protected if checkpoint else ())))
    with imports_beside(file):
        loaded = load_module(request.module)
        module = loaded.module
        note_imports(file, loaded.source)
        values = _values(module, request, checkpoint)
        functions = tuple(_traced(module, entry, file) for entry in request.entries)
    encodings = declared_encodings(functions)
    contents = Contents(
        functions,
        used_target(target, encodings),
        _reading(functions, values),
        identity=function_identity(request.name or type(module).__name__, type(module).__name__),
        dtype=matrix_dtype(functions, encodings),
        encodings=encodings,
        sources=_sources(request, read),
        executed={file: loaded.source},
        origin=request.origin,
    )
    build = ModuleBuild(request, contents, checkpoint, [*(checkpoint.notes if checkpoint else ())])
    build.check_machine()
    return build


def _sources(request: ModuleRequest, read: Iterable[Path]) -> dict[str, Path]:
    """The files that were read, by their names beside the module or its weights."""
    return named(read, request.module.file, *filter(None, [request.weights]))


def _values(
    module: AnyModule, request: ModuleRequest, checkpoint: Checkpoint | None
) -> ModuleWeights | None:
    if checkpoint is not None:
        options: dict[str, Any] = {"prefix": request.prefix, "dtype": request.dtype}
        return module_weights.match(module, checkpoint, **options)
    if needed := [leaf.name for leaf in tree.leaves(module)]:
        what = f"{request.module} has {len(needed)} weights, such as {needed[0]}"
        raise UsageError(what, hint="--weights CHECKPOINT says where their values are")
    return None


def function_identity(name: str, module: str) -> dict[str, object]:
    """Return the first fields of the manifest of a module, which has no task."""
    return {"name": name, "recipe": None, "architecture": module, "task": None}


def declared_encodings(functions: tuple[NamedGraph, ...]) -> dict[str, QuantizationEncoding]:
    """Encodings of the weights that graphs declare as quantized, by name."""
    declared = {
        name: owner
        for function in functions
        for name in function.graph.weight_values
        if (owner := function.graph.weight(name)) is not None
    }
    return {
        name: owner.quantization_encoding
        for name, owner in declared.items()
        if owner.quantization_encoding is not None
    }


def matrix_dtype(
    functions: tuple[NamedGraph, ...], encodings: Mapping[str, QuantizationEncoding]
) -> DType | None:
    """The type of all matrices that are not quantized; None where there are several, or none."""
    types = {
        value.dtype
        for function in functions
        for name, value in function.graph.weight_values.items()
        if value.rank > 1 and name not in encodings
    }
    return types.pop() if len(types) == 1 else None


def _reading(functions: tuple[NamedGraph, ...], values: ModuleWeights | None) -> Read:
    """The values of all weights: of the checkpoint, or as the module's code gave them."""
    own = {
        name: owner
        for function in functions
        for name, owner in function.graph.owners.items()
        if owner.is_bound
    }
    names = values.names if values else {}
    used = {name for function in functions for name in function.graph.weight_values}
    if missing := sorted(used - {*names, *own}):
        what = "weights that are used are not part of the module, and have no values"
        hint = "set them as attributes of the module or of one of its layers"
        raise MissingWeight(what, problems=missing, hint=hint)

    def read(name: str) -> WeightData:
        return values.read(name) if values and name in names else bound_data(name, own[name])

    return read


def _traced(module: AnyModule, entry: EntrySpec, file: Path) -> NamedGraph:
    """The graph of an entry."""
    with user_code(f"{type(module).__name__}.{entry.method}", file):
        method, declared = _method(module, entry)
    own = {} if entry.inputs else _own_types(module, entry, declared, file)
    types = _ordered(entry.inputs or own, declared)
    _check_names(entry, types, declared)
    by_position = {
        name
        for name, parameter in declared.parameters.items()
        if parameter.kind is Parameter.POSITIONAL_ONLY
    }
    nesting: list[Any] = []

    def function(*tensors: Tensor) -> list[Tensor]:
        named = dict(zip(types, tensors, strict=True))
        leading = [named.pop(name) for name in types if name in by_position]
        outputs, structure = flatten(method(*leading, **named))
        nesting.append(structure)
        return outputs

    symbol = f"{SYMBOL}{entry.name}"
    with user_code(f"{type(module).__name__}.{entry.method}", file):
        graph = trace(module, symbol, types.values(), function)
    if not graph.outputs:
        raise ModelMismatch(f"{type(module).__name__}.{entry.method} returns no tensor", file=file)
    outputs = result_names(nesting[0])
    return pure_function(entry.name, symbol, graph, tuple(types), outputs)


def _method(module: AnyModule, entry: EntrySpec) -> tuple[Callable[..., Any], Signature]:
    """Return the function of an entry; ``forward`` is a call of the module, hooks and all."""
    if entry.method in (FORWARD, "__call__"):
        return module, signature_of(module)
    method = getattr(module, entry.method, None)
    known = [
        name for name in dir(type(module)) if not (name.startswith("_") or _is_ours(module, name))
    ]
    if _is_ours(module, entry.method):
        what = f"{entry.method} is a method of maxtool's Module, and not a function of tensors"
        raise UsageError(what, hint=f"methods of {type(module).__name__}: {', '.join(known)}")
    if not callable(method):
        what = f"{type(module).__name__} has no method {entry.method!r}"
        raise UsageError(what, hint=did_you_mean(entry.method, known))
    return method, signature(method)


def _is_ours(module: AnyModule, name: str) -> bool:
    """Return whether a method is that of the base class of all modules of its style."""
    owner = next((cls for cls in type(module).__mro__ if name in vars(cls)), None)
    return owner is not None and any(issubclass(style, owner) for style in (Module, EagerModule))


def _own_types(
    module: AnyModule, entry: EntrySpec, declared: Signature, file: Path
) -> dict[str, TensorType]:
    """The types that a module of the eager style says by itself, if it does."""
    what = f"{type(module).__name__}.input_types"
    with user_code(what, file):
        own = getattr(module, "input_types", None)
        if entry.method != FORWARD or not callable(own):
            return {}
        try:
            types = own()
        except NotImplementedError:
            return {}
    if not isinstance(types, (list, tuple)) or not all(isinstance(t, TensorType) for t in types):
        raise ModelMismatch(f"{what} does not return a list of TensorType", file=file)
    return dict(zip(declared.parameters, types, strict=False))


def _ordered(types: Mapping[str, TensorType], declared: Signature) -> dict[str, TensorType]:
    """Types in the order of the parameters, others behind them."""
    order = [*(name for name in declared.parameters if name in types), *types]
    return {name: types[name] for name in dict.fromkeys(order)}


def _check_names(entry: EntrySpec, types: Mapping[str, TensorType], declared: Signature) -> None:
    """Refuse inputs that are not those of the method."""
    if problems := list(_misnamed(types, declared)):
        takes = ", ".join(_spelled(item) for item in declared.parameters.values()) or "none"
        same = entry.name == entry.method
        asked = entry.name if same else f"entry {entry.name}, method {entry.method},"
        what = f"{asked} does not take these inputs"
        hint = f"it takes {takes}; write --input 'NAME=TYPE[SIZE,...]' for each"
        raise UsageError(what, problems=problems, hint=hint)


def _spelled(parameter: Parameter) -> str:
    """A parameter's name as it is declared; inputs have names, and those of ``*xs`` do not."""
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"*{parameter.name} (which cannot have named inputs)"
    return f"**{parameter.name}" if parameter.kind is Parameter.VAR_KEYWORD else parameter.name


def _misnamed(types: Mapping[str, TensorType], declared: Signature) -> Iterator[str]:
    parameters = declared.parameters
    open_ended = any(item.kind is Parameter.VAR_KEYWORD for item in parameters.values())
    known = [name for name, item in parameters.items() if item.kind not in GATHERING]
    for name in types:
        if name not in known and not open_ended:
            yield f"{name!r} is unknown" + (
                f": {near}" if (near := did_you_mean(name, known)) else ""
            )
    for name in known:
        if name not in types and parameters[name].default is Parameter.empty:
            yield f"{name!r} is missing"
