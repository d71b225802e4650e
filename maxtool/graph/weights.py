"""``Weights`` for graphs: the names of a checkpoint, or names alone, to allocate weights from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsIndex, runtime_checkable

from maxtool.dtype import DType
from maxtool.errors import MalformedFile, MisshapenWeight, MissingWeight
from maxtool.graph.device import DeviceRef
from maxtool.graph.dim import DimLike, Shape
from maxtool.graph.weight import Weight
from maxtool.quantization import QuantizationEncoding
from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from maxtool.weights.names import did_you_mean
from maxtool.weights.view import View, WeightSource
from maxtool.weights.weight_data import WeightData

__all__ = ["GGUFWeights", "SafetensorWeights", "WeightData", "Weights", "load_weights"]

HOST = DeviceRef.CPU()


@runtime_checkable
class Weights(Protocol):
    """A name, whole or the beginning of one, among the weights of a model.

    Any class with these members is one. Attributes and indices lengthen the name::

        weights = load_weights([Path("model.safetensors")])
        with graph:
            up = graph.add_weight(weights.layers[0].mlp.up.weight.allocate(DType.float32))
    """

    @property
    def name(self) -> str:
        """The dotted name built so far."""

    def exists(self) -> bool:
        """Return whether a weight has exactly this name."""

    def data(self) -> WeightData:
        """The weight's data; a ``KeyError`` if no weight has exactly this name."""

    def items(self) -> Iterator[tuple[str, Self]]:
        """Every weight at or below this name, by full name."""

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[DimLike] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef = HOST,
    ) -> Weight:
        """Declare this weight for a graph."""

    @property
    def allocated_weights(self) -> Mapping[str, Any]:
        """The data of every weight that was allocated, by full name."""

    if TYPE_CHECKING:  # a class that lengthens names in another way is one too when it runs

        def __getattr__(self, segment: str) -> Self: ...

        def __getitem__(self, segment: str | SupportsIndex) -> Self: ...


class CheckpointWeights(View):
    """The weights of a checkpoint, as :class:`Weights`; see :class:`maxtool.weights.Weights`."""

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[DimLike] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef = HOST,
    ) -> Weight:
        """Declare this weight for a graph, as :meth:`maxtool.weights.Weights.allocate` does.

        It has its data, which may begin at any byte of a file, so its alignment is 1.
        """
        data = self._converted(dtype, shape, quantization_encoding)
        encoding = data.quantization_encoding
        weight = Weight(self.name, data.dtype, data.shape, device, encoding, align=1)
        weight.bind(data.data)
        return weight


class DeclaredWeights(CheckpointWeights):
    """The weights of a graph that has no checkpoint: each exists once it has been allocated.

    Args:
        declared: The weights by name; allocating adds to it.
    """

    def __init__(self, declared: dict[str, Weight]) -> None:
        super().__init__(_Declared(declared))
        self._declared = declared

    def allocate(
        self,
        dtype: DType | None = None,
        shape: Iterable[DimLike] | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef = HOST,
    ) -> Weight:
        """Declare this weight; its data comes when the graph is loaded.

        Allocated again in the same way, it is the same weight; in another, a ``MisshapenWeight``.
        The type and the shape must be given: nothing else knows them.
        """
        if not self.name:
            raise ValueError("a weight needs a name: weights.layers[0].weight.allocate(...)")
        if dtype is None or shape is None:
            raise ValueError(
                f"weight {self.name!r}: a graph without a checkpoint needs both dtype and shape"
            )
        weight = Weight(self.name, dtype, Shape(shape), device, quantization_encoding)
        first = self._declared.setdefault(self.name, weight)
        if _declaration(first) != _declaration(weight):
            raise MisshapenWeight(
                f"allocated before as {_described(first)}, now as {_described(weight)}",
                tensor=self.name,
            )
        return first

    @property
    def allocated_weights(self) -> dict[str, Any]:
        """The data of those allocated weights that have some."""
        bound = {name: weight for name, weight in self._declared.items() if weight.is_bound}
        return {name: weight.to_numpy() for name, weight in bound.items()}


class _Declared:
    """Weights of a graph, as a view's source."""

    def __init__(self, declared: Mapping[str, Weight]) -> None:
        self.tensors = declared

    def read(self, name: str) -> WeightData:
        weight = self.tensors.get(name)
        if weight is None:
            hint = did_you_mean(name, self.tensors)
            raise MissingWeight(f"no weight {name!r} was allocated", tensor=name, hint=hint)
        data, shape = weight.to_numpy(), weight.shape.static()
        return WeightData(data, name, weight.dtype, shape, weight.quantization_encoding)


class SafetensorWeights(CheckpointWeights):
    """The weights of safetensors files.

    Args:
        filepaths: The files; a file alone, a folder or an ``index.json`` will do too.

    Raises:
        ValueError: If a file is of another format, or as for :func:`load_weights`.
    """

    def __init__(self, filepaths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> None:
        super().__init__(_source(filepaths, "safetensors"))


class GGUFWeights(CheckpointWeights):
    """The weights of a GGUF file; errors as for :class:`SafetensorWeights`."""

    def __init__(self, source: str | PathLike[str]) -> None:
        super().__init__(_source(source, "gguf"))


def load_weights(paths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> Weights:
    """Open a checkpoint, whole or in several files; headers only, data is mapped when it is read.

    Args:
        paths: The files, all of one format. A folder, or a file of any format that
            :func:`maxtool.weights.open_checkpoint` reads, will do too.

    Raises:
        ValueError: If there is no file, or they are of several formats.
        MissingFile: If a file is not there.
        MalformedFile: If a file is not what its format demands, or two files hold one name.
        InputError: If the files use what is not supported.
    """
    return CheckpointWeights(_source(paths, None))


def _source(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]], wanted: str | None
) -> WeightSource:
    listed = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not listed:
        raise ValueError("there is no file to load weights from")
    opened = [open_checkpoint(Path(fspath(path))) for path in listed]
    formats = {file.format for file in opened}
    if len(formats) > 1:
        raise ValueError(f"files of several formats: {', '.join(sorted(formats))}")
    if wanted is not None and formats != {wanted}:
        raise ValueError(f"{listed[0]} is {formats.pop()}, not {wanted}")
    return opened[0] if len(opened) == 1 else _Joined(opened)


class _Joined:
    """Several files as one source; names that are in two of them are refused."""

    def __init__(self, parts: Sequence[Checkpoint]) -> None:
        self.tensors: dict[str, object] = {}
        self._readers: dict[str, Callable[[str], WeightData]] = {}
        twice = []
        for part in parts:
            twice += [
                f"{name!r}, again in {part.path}" for name in part.tensors.keys() & self.tensors
            ]
            self.tensors.update(part.tensors)
            self._readers.update(dict.fromkeys(part.tensors, part.read))
        if twice:
            raise MalformedFile("files share names of tensors", problems=sorted(twice))

    def read(self, name: str) -> WeightData:
        if name not in self._readers:
            hint = did_you_mean(name, self.tensors)
            raise MissingWeight(f"no tensor {name!r}", tensor=name, hint=hint)
        return self._readers[name](name)


def _described(weight: Weight) -> str:
    encoding = weight.quantization_encoding
    return f"{weight.type}, {encoding.name} blocks" if encoding else str(weight.type)


def _declaration(weight: Weight) -> tuple[object, ...]:
    return weight.type, weight.quantization_encoding
