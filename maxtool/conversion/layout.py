"""The files of an output: what each is called, which tensors it holds, and its exact bytes.

Shards of safetensors are cut and named as huggingface_hub's ``split_torch_state_dict_into_shards``
does for transformers, splits of GGUF as gguf-py's ``GGUFWriter`` does for llama.cpp's converter. A
limit bounds the tensors of a file, without its header; a larger tensor has a file of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maxtool.conversion.output_tensors import TensorSource
from maxtool.conversion.replaceable import CHECKSUMS
from maxtool.conversion.request import SHARDED, Request
from maxtool.conversion.writers import WRITERS
from maxtool.errors import UsageError
from maxtool.files import Journal, staged, staged_parts
from maxtool.recipe import dense_modules
from maxtool.recipe.sentence_modules import MODULES, parse_modules
from maxtool.weights.formats import safetensors
from maxtool.weights.locate import MAX_PARTS, SPLIT_COUNT, SPLIT_TENSORS
from maxtool.weights.names import natural_key

STEM = "model"  # of the files in a folder
SPLIT_NUMBER = "split.no"
SHA256_DIGITS = 64
INDEX = ".safetensors.index.json"


@dataclass(frozen=True)
class TensorFile:
    """One file with tensors.

    Attributes:
        name: Its name in the folder of the output.
        tensors: What it holds, in order.
        metadata: Key/values of its header.
    """

    name: str
    tensors: tuple[TensorSource, ...]
    metadata: Mapping[str, Any]

    def nbytes(self, request: Request) -> int:
        """The exact bytes of the file."""
        specs = [spec for spec, _ in self.tensors]
        _, offsets = WRITERS[request.target].header(specs, self.metadata)
        return int(offsets[-1])


@dataclass(frozen=True)
class Layout:
    """All files of an output.

    Attributes:
        files: Those with tensors.
        beside: The content of the others, by name.
        entry: The file that readers begin with.
        checksums: The file that lists the others' checksums, if there is one.
        replaced: The names of files that such an output replaces beside it; None where the output
            is one file or a folder, which is replaced itself.
    """

    files: tuple[TensorFile, ...]
    beside: Mapping[str, bytes]
    entry: str
    replaced: re.Pattern[str] | None = None
    checksums: str | None = None

    @property
    def listed(self) -> list[str]:
        """The names of all files but the list of checksums."""
        return [*(file.name for file in self.files), *self.beside]

    @property
    def parts(self) -> list[str]:
        """The names of all files, first the one that readers begin with."""
        names = [*self.listed, *([self.checksums] if self.checksums else [])]
        return [self.entry, *(name for name in names if name != self.entry)]

    def sizes(self, request: Request) -> dict[str, int]:
        """The exact bytes of every file, by name."""
        sizes = {file.name: file.nbytes(request) for file in self.files}
        sizes |= {name: len(data) for name, data in self.beside.items()}
        if self.checksums:
            empty = dict.fromkeys(self.listed, "0" * SHA256_DIGITS)
            sizes[self.checksums] = len(checksum_lines(empty))
        return sizes


def checksum_lines(digests: Mapping[str, str]) -> bytes:
    """A list of checksums by file, as ``sha256sum`` writes and checks it."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode()


def laid_out(
    request: Request,
    tensors: Sequence[TensorSource],
    metadata: Mapping[str, Any],
    beside: Mapping[str, bytes],
) -> Layout:
    """Lay tensors out in one file, or in as many as the request's limit asks for."""
    rest, apart = _apart(request, tensors, metadata, beside)
    layout = _tensor_files(request, rest, metadata, beside)
    layout = replace(layout, files=(*layout.files, *apart))
    files = tuple(_in_order_of_storage(request, file) for file in layout.files)
    layout = replace(layout, files=files)
    if not request.sha256:
        return layout
    if request.target == "hf":
        return replace(layout, checksums=CHECKSUMS)
    name = f"{request.output.name}.sha256"
    others = layout.replaced.pattern if layout.replaced else re.escape(layout.entry)
    return replace(layout, checksums=name, replaced=re.compile(f"{others}|{re.escape(name)}"))


def _apart(
    request: Request,
    tensors: Sequence[TensorSource],
    metadata: Mapping[str, Any],
    beside: Mapping[str, bytes],
) -> tuple[list[TensorSource], list[TensorFile]]:
    """The tensors of a folder's main files, and those of modules, which have folders of their own.

    Which folders these are is said by the list of modules that the output has.
    """
    if request.target != "hf" or MODULES not in beside:
        return list(tensors), []
    modules = parse_modules(beside[MODULES], request.output / MODULES)
    folders = [module.path for module in modules if module.kind == dense_modules.KIND]
    rest: list[TensorSource] = []
    apart: dict[str, list[TensorSource]] = {}
    for spec, origin in tensors:
        if (place := dense_modules.placed(spec.name, folders)) is None:
            rest.append((spec, origin))
            continue
        folder, name = place
        apart.setdefault(folder, []).append((replace(spec, name=name), origin))
    file = dense_modules.WEIGHTS[0]
    return rest, [
        TensorFile(f"{folder}/{file}", tuple(held), metadata) for folder, held in apart.items()
    ]


def _in_order_of_storage(request: Request, file: TensorFile) -> TensorFile:
    """The same file, its tensors as they follow each other there: it is hashed as it is written."""
    if request.target not in SHARDED:
        return file
    origins = {spec.name: (spec, origin) for spec, origin in file.tensors}
    ordered = safetensors.storage_order(spec for spec, _ in file.tensors)
    return replace(file, tensors=tuple(origins[spec.name] for spec in ordered))


def _tensor_files(
    request: Request,
    tensors: Sequence[TensorSource],
    metadata: Mapping[str, Any],
    beside: Mapping[str, bytes],
) -> Layout:
    cut = [list(tensors)]
    if request.most_bytes is not None:
        cut = CUTS[request.target](tensors, request.most_bytes)
    if len(cut) < 2:
        name = f"{STEM}.safetensors" if request.target == "hf" else request.output.name
        return Layout((TensorFile(name, tuple(tensors), metadata),), beside, name)
    if len(cut) > MAX_PARTS:
        what = f"the output would be of {len(cut)} files; at most {MAX_PARTS} are read"
        raise UsageError(what, file=request.output, hint="let the files be larger")
    return PARTS[request.target](request, cut, metadata, beside)


@contextmanager
def staged_layout(
    request: Request, layout: Layout, journal: Journal | None = None
) -> Iterator[Path]:
    """Yield a hidden folder for the files of an output; put them in place if the block succeeds.

    With a journal, files that it lists are in the folder already.
    """
    output, replace = request.output, request.force
    if layout.replaced is not None:
        with staged_parts(
            output, parts=layout.parts, old=layout.replaced, replace=replace, journal=journal
        ) as folder:
            yield folder
        return
    whole = request.target == "hf"
    with staged(output, folder=whole, replace=replace, journal=journal) as path:
        yield path if whole else path.parent


def _cut_as_huggingface_hub(tensors: Sequence[TensorSource], most: int) -> list[list[TensorSource]]:
    """Tensors of neighbouring layers together; one that is too large goes before those at hand."""
    result: list[list[TensorSource]] = []
    current: list[TensorSource] = []
    size = 0
    for pair in sorted(tensors, key=lambda pair: natural_key(pair[0].name)):
        nbytes = pair[0].nbytes
        if nbytes > most:
            result.append([pair])
            continue
        if size + nbytes > most:
            result.append(current)
            current, size = [], 0
        current.append(pair)
        size += nbytes
    return [*result, current] if current else result


def _cut_as_gguf_py(tensors: Sequence[TensorSource], most: int) -> list[list[TensorSource]]:
    """Tensors in their order, as many as the limit lets each file have."""
    result: list[list[TensorSource]] = [[]]
    size = 0
    for pair in tensors:
        nbytes = pair[0].nbytes
        if result[-1] and size + nbytes > most:
            result.append([])
            size = 0
        result[-1].append(pair)
        size += nbytes
    return result


def _shards(
    request: Request,
    cut: Sequence[Sequence[TensorSource]],
    metadata: Mapping[str, Any],
    beside: Mapping[str, bytes],
) -> Layout:
    """Shards, and the index that says in which of them each tensor is."""
    folder = request.target == "hf"
    stem = STEM if folder else _stem(request, ".safetensors")
    names = _numbered(stem, len(cut), ".safetensors")
    files = tuple(
        TensorFile(name, tuple(pairs), metadata) for name, pairs in zip(names, cut, strict=True)
    )
    index = f"{stem}{INDEX}"
    replaced = re.compile(
        rf"{re.escape(stem)}(-\d{{5}}-of-\d{{5}}\.safetensors|{re.escape(INDEX)})"
    )
    beside = {**beside, index: _index(files)}
    return Layout(files, beside, index, None if folder else replaced)


def _index(files: Sequence[TensorFile]) -> bytes:
    """The index of shards, as transformers writes it."""
    specs = [spec for file in files for spec, _ in file.tensors]
    metadata = {
        "total_parameters": sum(spec.size for spec in specs),
        "total_size": sum(spec.nbytes for spec in specs),
    }
    weight_map = {spec.name: file.name for file in files for spec, _ in file.tensors}
    content = {"metadata": metadata, "weight_map": weight_map}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _splits(
    request: Request,
    cut: Sequence[Sequence[TensorSource]],
    metadata: Mapping[str, Any],
    beside: Mapping[str, bytes],
) -> Layout:
    """Splits, of which the first has the key/values and each says which it is."""
    stem = _stem(request, ".gguf")
    total = sum(map(len, cut))
    files = []
    for number, name in enumerate(_numbered(stem, len(cut), ".gguf")):
        keys = {
            **({} if number else metadata),
            SPLIT_NUMBER: np.uint16(number),
            SPLIT_COUNT: np.uint16(len(cut)),
            SPLIT_TENSORS: np.int32(total),
        }
        files.append(TensorFile(name, tuple(cut[number]), keys))
    replaced = re.compile(rf"{re.escape(stem)}-\d{{5}}-of-\d{{5}}\.gguf")
    return Layout(tuple(files), beside, files[0].name, replaced)


def _stem(request: Request, suffix: str) -> str:
    """The output's name without the suffix of its format, if it has it."""
    name = request.output.name
    return name[: -len(suffix)] if name.lower().endswith(suffix) else name


def family(request: Request) -> re.Pattern[str] | None:
    """The names of all files that outputs of a name have, in any number; None for a folder."""
    if request.target == "hf":
        return None
    suffix = f".{request.target}"
    stem = re.escape(_stem(request, suffix))
    whole = re.escape(request.output.name)
    numbered, index = rf"{stem}-\d{{5}}-of-\d{{5}}{re.escape(suffix)}", f"{stem}{re.escape(INDEX)}"
    forms = {"gguf": [numbered], "safetensors": [numbered, index]}.get(request.target, [])
    return re.compile("|".join([whole, rf"{whole}\.sha256", *forms]))


def _numbered(stem: str, count: int, suffix: str) -> list[str]:
    return [f"{stem}-{number:05d}-of-{count:05d}{suffix}" for number in range(1, count + 1)]


CUTS = {
    "gguf": _cut_as_gguf_py,
    "hf": _cut_as_huggingface_hub,
    "safetensors": _cut_as_huggingface_hub,
}
PARTS = {"gguf": _splits, "hf": _shards, "safetensors": _shards}
