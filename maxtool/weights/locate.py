"""Resolution of a path to the tensors of all its files: folders, shards and split files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from maxtool.errors import MalformedFile, MissingFile
from maxtool.weights import hub
from maxtool.weights.formats import ACCEPTED, Format, artifact, read
from maxtool.weights.formats.file_index import FileIndex
from maxtool.weights.formats.gguf_values import whole_number
from maxtool.weights.jsonfile import read_object
from maxtool.weights.names import listed, selected, stays_inside
from maxtool.weights.source_file import Stamp, is_file, unreadable
from maxtool.weights.tensor_info import TensorInfo

# What stands for the checkpoint in a folder: names, then patterns that one file may match. A model
# published in several formats is read from the first.
NAMES = ("model.safetensors.index.json", "model.safetensors")
PATTERNS = (
    "*.safetensors.index.json",
    "*.safetensors",
    "*-00001-of-*.gguf",
    "*.gguf",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "*.bin.index.json",
    "*.pth",
    "*.pt",
    "*.onnx",
    "*.npz",
    "*.npy",
)
# The format of shards by the ending of their names, and which files beside them may be strays.
SHARDS: Mapping[str, tuple[Format, str]] = {
    ".safetensors": ("safetensors", "*.safetensors"),
    ".bin": ("pytorch", "pytorch_model*.bin"),
}
SPLIT_COUNT, SPLIT_TENSORS = "split.count", "split.tensors.count"
SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
MAX_PARTS = 4096
# Tensors of all files together; the largest published models have 140000.
MAX_TENSORS = 1 << 18


@dataclass(frozen=True, slots=True)
class LocatedTensors:
    """The tensors of all files that a path means, and these as they were when they were read."""

    format: Format
    seen: Mapping[Path, Stamp]
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, object]
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file with tensors."""
        return tuple(self.seen)


def find(path: Path) -> LocatedTensors:
    """Read the headers of everything that ``path`` means."""
    try:
        path.lstat()
        file = _in_folder(path) if path.is_dir() else path
    except (OSError, ValueError) as error:
        raise unreadable(path, error, hint=_elsewhere(path)) from error
    compiled = file.name == artifact.FILE and artifact.begins_as_manifest(file)
    if file.suffix == ".json" and not compiled:
        return _sharded(file)
    format_, index, seen = read(file, "artifact" if compiled else None)
    if format_ == "gguf" and _split_count(index, file) > 1:
        return _split(file, index)
    tensors = {tensor.name: tensor for tensor in index.tensors}
    return LocatedTensors(format_, seen, tensors, index.metadata, index.notes)


def is_compiled(path: Path) -> bool:
    """Return whether a path is the folder of a compiled model, or its manifest."""
    return artifact.begins_as_manifest(path / artifact.FILE if path.is_dir() else path)


def may_be_checkpoint(path: Path) -> bool:
    """Return whether a path is a file, or a folder with a file that stands for a checkpoint."""
    if is_compiled(path) or not path.is_dir():
        return path.is_file() and not is_compiled(path)
    return any(next(path.glob(name), None) is not None for name in (*NAMES, *PATTERNS))


def _elsewhere(path: Path) -> str:
    """Advice for a path at which nothing is: it may be meant as a repository of the Hub."""
    if hub.looks_like_repository(path):
        return f"a repository of the Hugging Face Hub? {hub.download(path.as_posix())}"
    if hub.is_bare_name(path):
        return f"accepted: {ACCEPTED}; or hf://{path.as_posix()}, a repository of the Hub"
    return f"accepted: {ACCEPTED}"


def _in_folder(folder: Path) -> Path:
    """The one file in a folder that stands for its checkpoint."""
    pattern, names = standing_for([entry.name for entry in folder.iterdir()])
    if len(names) == 1:
        return folder / names[0]
    if names:
        what, hint = f"several files match {pattern}", "name the file that is meant"
        raise MissingFile(what, file=folder, problems=listed(names), hint=hint)
    if artifact.begins_as_manifest(folder / artifact.FILE):
        return folder / artifact.FILE
    raise MissingFile("no checkpoint in this folder", file=folder, hint=f"accepted: {ACCEPTED}")


def standing_for(names: Collection[str]) -> tuple[str, list[str]]:
    """The files of a folder that may stand for its checkpoint, and the pattern that they match.

    They are all of one format, sorted; a checkpoint is read if there is one alone.
    """
    for pattern in (*NAMES, *PATTERNS):
        if matches := fnmatch.filter(names, pattern):
            return pattern, sorted(matches)
    return "", []


def _sharded(index_file: Path) -> LocatedTensors:
    """The tensors of a shard index, which alone decides what belongs to the checkpoint."""
    wanted = _weight_map(index_file)
    folder = index_file.parent
    names = sorted(set(wanted.values()))
    check_parts(len(names), index_file)
    missing = [name for name in names if not is_file(folder / name)]
    if missing:
        what = "shards that the index names are missing"
        raise MissingFile(what, file=index_file, problems=listed(missing))
    shard_format, pattern = _kind_of_shards(names, index_file)
    headers, seen = _read_all(shard_format, [folder / name for name in names])
    indexes = dict(zip(names, headers, strict=True))
    held = {name: {info.name: info for info in index.tensors} for name, index in indexes.items()}
    absent = [f"{name} in {file}" for name, file in wanted.items() if name not in held[file]]
    if absent:
        what = "tensors that the index names are not in their shards"
        raise MalformedFile(what, file=index_file, problems=listed(absent))
    tensors = {
        name: info
        for file, infos in held.items()
        for name, info in infos.items()
        if wanted.get(name) == file
    }
    metadata = _merged(index.metadata for index in indexes.values())
    beside = [path.name for path in folder.glob(pattern) if path.name not in held]
    return LocatedTensors(shard_format, seen, tensors, metadata, _strays(wanted, held, beside))


def named_shards(index_file: Path) -> list[str]:
    """The files that an index names, sorted; what else is wrong with it is said by :func:`find`."""
    named = read_object(index_file).get("weight_map")
    files = named.values() if isinstance(named, dict) else ()
    shards = sorted({name for name in files if isinstance(name, str) and stays_inside(name)})
    check_parts(len(shards), index_file)
    return shards


def check_parts(count: int, file: Path) -> None:
    """Check that a checkpoint has no more shards or parts, named by ``file``, than are read."""
    if count > MAX_PARTS:
        raise MalformedFile(f"{count} files; at most {MAX_PARTS} are read", file=file)


def _read_all(
    format_: Format, files: Sequence[Path]
) -> tuple[list[FileIndex], Mapping[Path, Stamp]]:
    """The headers of several files, which may not hold too much together."""
    indexes: list[FileIndex] = []
    seen: dict[Path, Stamp] = {}
    tensors = 0
    for file in files:
        _, index, stamps = read(file, format_)
        indexes.append(index)
        seen |= stamps
        tensors += len(index.tensors)
        if tensors > MAX_TENSORS:
            what = f"more than {MAX_TENSORS} tensors in all files up to this one"
            raise MalformedFile(what, file=file)
    return indexes, seen


def _kind_of_shards(names: Sequence[str], index_file: Path) -> tuple[Format, str]:
    """The format of all shards, and the pattern of files that could be of them."""
    suffixes = {PurePosixPath(name).suffix for name in names}
    if len(suffixes) > 1:
        what = f"the index names shards of several formats: {', '.join(sorted(suffixes))}"
        raise MalformedFile(what, file=index_file)
    return SHARDS.get(suffixes.pop(), SHARDS[".safetensors"])


def _weight_map(index_file: Path) -> dict[str, str]:
    """Tensor name to shard name; every shard lies in the folder of the index."""
    content = read_object(index_file)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        what = "no weight_map: this JSON file is not an index of shards"
        raise MalformedFile(what, file=index_file, hint=f"accepted: {ACCEPTED}")
    wrong = [
        f"{name}: {file!r}"
        for name, file in weight_map.items()
        if not isinstance(file, str) or not stays_inside(file)
    ]
    if wrong:
        what = "the index names shards outside its folder"
        raise MalformedFile(what, file=index_file, problems=listed(wrong))
    return weight_map


def _strays(
    wanted: Mapping[str, str], held: Mapping[str, Mapping[str, TensorInfo]], beside: Sequence[str]
) -> tuple[str, ...]:
    """Return tensors in the shards or next to them that the index does not name."""
    extra = [name for infos in held.values() for name in infos if name not in wanted]
    twice = [
        name for file, infos in held.items() for name in infos if wanted.get(name, file) != file
    ]
    findings = {
        "tensors in the shards that the index does not name were left out": extra,
        "tensors are in a second shard too; the index decides": twice,
        "files beside the shards that the index does not name were left out": beside,
    }
    return tuple(
        f"{what}: {', '.join(listed(selected(names)))}" for what, names in findings.items() if names
    )


def _merged(metadata: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """All shards' metadata; where they differ, the first shard's."""
    merged: dict[str, object] = {}
    for mapping in metadata:
        for key, value in mapping.items():
            merged.setdefault(key, value)
    return merged


def _split_count(index: FileIndex, file: Path) -> int:
    count = whole_number(index.metadata.get(SPLIT_COUNT), 1)
    if count is None:
        raise MalformedFile(f"{SPLIT_COUNT} is not an integer", file=file)
    return count


def _split(file: Path, index: FileIndex) -> LocatedTensors:
    """All parts of a split GGUF file, whichever of them was named."""
    count = _split_count(index, file)
    check_parts(count, file)
    match = SPLIT_NAME.fullmatch(file.name)
    if match is None or int(match["count"]) != count:
        hint = f"its name must end in -00001-of-{count:05d}.gguf"
        raise MalformedFile(f"one of {count} parts, but not named so", file=file, hint=hint)
    parts = [file.with_name(name) for name in part_names(match)]
    missing = [part.name for part in parts if not is_file(part)]
    if missing:
        raise MissingFile("parts of a split file are missing", file=file, problems=listed(missing))
    indexes, seen = _read_all("gguf", parts)
    tensors = _unique(tensor for part in indexes for tensor in part.tensors)
    first = indexes[0].metadata
    if whole_number(first.get(SPLIT_TENSORS), len(tensors)) != len(tensors):
        what = f"{SPLIT_TENSORS} is {first[SPLIT_TENSORS]} and the parts hold {len(tensors)}"
        raise MalformedFile(what, file=parts[0])
    return LocatedTensors("gguf", seen, tensors, first)


def named_parts(name: str) -> list[str]:
    """The parts of a split GGUF file, told by the name of one; itself if it is whole."""
    match = SPLIT_NAME.fullmatch(name)
    if match is None or int(match["count"]) > MAX_PARTS:
        return [name]
    return part_names(match)


def part_names(match: re.Match[str]) -> list[str]:
    """Return the names of all parts, from that of one."""
    count = int(match["count"])
    return [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def _unique(tensors: Iterable[TensorInfo]) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    for tensor in tensors:
        if tensor.name in found:
            raise MalformedFile("the tensor is in two parts", file=tensor.file, tensor=tensor.name)
        found[tensor.name] = tensor
    return found
