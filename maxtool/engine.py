"""``InferenceSession``: graphs with their weights, ready to run in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MissingWeight
from maxtool.graph import (
    CPU,
    DerivedWeight,
    DeviceRef,
    FoldedWeight,
    Graph,
    Shard,
    Tensor,
    Weight,
    executor,
)
from maxtool.graph.executor import CompiledGraph
from maxtool.graph.limits import devices as named_devices
from maxtool.graph.limits import least_sizes
from maxtool.nn.arguments import Arguments
from maxtool.nn.saving import CompiledFunction
from maxtool.nn.state import Value, as_data, missing_names, require_sizes
from maxtool.nn.weight_binding import WeightValues, elements, weight_values
from maxtool.weights.weight_data import WeightData

Array = np.ndarray[Any, Any]


class Model:
    """A compiled graph with its weights: call it with tensors or NumPy arrays."""

    def __init__(self, graph: Graph, run: CompiledGraph) -> None:
        self.name = graph.name
        self._graph = graph
        self.input_types = tuple(value.type for value in graph.inputs)
        self.output_types = tuple(value.type for value in graph.outputs)
        places = [str(number) for number in range(len(self.input_types))]
        self._arguments = Arguments(places, self.input_types, least_sizes(graph))
        self._run = run

    def execute(self, *inputs: Tensor | Array) -> list[Tensor]:
        """Run the graph. Inputs of a ``BufferType`` are written in place.

        Raises:
            ValueError: Naming each input by its place that does not fit, what was expected and
                what it is; sizes of one symbolic dimension must agree in all inputs.
        """
        return list(self._run(*self._arguments.tensors(inputs, {})))

    __call__ = execute

    def save(
        self,
        folder: str | PathLike[str],
        *,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        force: bool = False,
        check: bool = False,
        standalone: bool = False,
    ) -> None:
        """Write it as an artifact, the folder that ``maxtool compile`` makes.

        Args:
            folder: The folder to make.
            inputs: A name for each input; ``input``, or ``input_0``, ``input_1``, ... if None.
            outputs: A name for each output; ``output``, or ``output_0``, ... if None.
            force: Whether an existing artifact is replaced.
            check: Whether its outputs are compared with the graph in float64 first.
            standalone: Whether TVM's runtime library is put into the folder.

        Raises:
            ValueError: If there are more or fewer names than inputs or outputs.
            OutputExists: If something is there already.
            ModelMismatch: If the graph is not a function of arrays alone: if it writes buffers in
                place, runs on several devices, or needs sizes that nothing checks.
            ParityFailed: If the outputs are not those of the graph.
            MachineLacks: If the disk has no room, or the machine no linker.
        """
        function = CompiledFunction(
            name=self.name,
            graph=self._graph,
            inputs=_named("input", inputs, len(self.input_types)),
            outputs=_named("output", outputs, len(self.output_types)),
            weight=self._run.weight,
            encodings=self._run.encodings,
        )
        function.save(folder, force=force, check=check, standalone=standalone)

    def __repr__(self) -> str:
        kinds = ", ".join(map(str, self.input_types))
        return f"Model({self.name!r}, [{kinds}])"


def _named(root: str, names: Sequence[str] | None, count: int) -> Sequence[str]:
    """The names that are given, or names by number."""
    if names is None:
        return [root] if count == 1 else [f"{root}_{index}" for index in range(count)]
    if isinstance(names, str) or len(names) != count:
        raise ValueError(f"{count} {root}s need as many names, not {names!r}")
    return names


class InferenceSession:
    """Compiles graphs for the devices of this machine.

    Args:
        devices: What graphs may use; the host is always among them.

    Raises:
        MissingDevice: If this machine lacks one of them (also a ValueError).
    """

    def __init__(self, devices: Iterable[DeviceRef] = ()) -> None:
        self.devices = tuple(dict.fromkeys((CPU(), *(device.to_device() for device in devices))))

    def load(self, model: Graph, *, weights_registry: Mapping[str, Value] | None = None) -> Model:
        """Compile a graph.

        The values of the weights are taken now: what happens to them later changes nothing.

        Args:
            model: A graph that says what it returns.
            weights_registry: The value of every weight by its name; more are accepted. Without a
                registry, weights have the values that were loaded into them.

        Raises:
            ValueError: If the graph returns nothing, or uses a device the session does not have.
            MissingWeight: Listing the weights that have no value (also a ValueError).
            MisshapenWeight: Listing the values of another dtype or shape than the graph declares
                (also a ValueError).
            MissingDevice: If something is to run on a device that is not here (also a ValueError).
        """
        self.check(model)
        values = _values(model, weights_registry)
        run = executor.find_executor().compile(model, values.arrays, values.encodings)
        return Model(model, run)

    def check(self, graph: Graph) -> None:
        """Return whether the session can run a graph.

        Raises:
            ValueError: If it returns nothing, or uses a device the session does not have.
            MissingWeight: If the size of a weight is not known (also a ValueError).
        """
        if not graph.outputs:
            raise ValueError(f"graph {graph.name!r} returns nothing: call its output() first")
        require_sizes(graph)
        if others := named_devices(graph) - set(self.devices):
            names = ", ".join(sorted(device.name for device in others))
            had = ", ".join(device.name for device in self.devices)
            raise ValueError(f"graph {graph.name!r} uses {names}; the session has {had}")


def _values(graph: Graph, registry: Mapping[str, Value] | None) -> WeightValues:
    """The value of every weight of the graph."""
    values: dict[str, Value] = dict(registry) if registry is not None else {}
    for name in graph.weight_values:
        owner = graph.weight(name)
        if registry is not None and isinstance(owner, FoldedWeight):
            values |= _folded(name, owner, registry)
            continue
        derived = isinstance(owner, DerivedWeight) and not isinstance(owner, Shard)
        own = owner is not None and owner.name == name and owner.is_bound
        if owner is not None and own and (derived or registry is None):
            values.setdefault(name, owner.to_numpy())
    whole = {name: part.whole for name, part in graph.parts.items() if name not in values}
    needed = {whole.get(name, name): name for name in graph.weight_values}
    if missing := missing_names(needed, values):
        where = "the weights have no values" if registry is None else "the registry lacks weights"
        hint = "pass weights_registry=module.state_dict()" if registry is None else None
        raise MissingWeight(f"{where} that graph {graph.name!r} needs", problems=missing, hint=hint)
    data = {name: _data(name, values[name], _owner(graph, use)) for name, use in needed.items()}
    return weight_values(graph, data)


def _folded(name: str, owner: FoldedWeight, registry: Mapping[str, Value]) -> dict[str, Value]:
    """The value of a weight by name, if the registry has all that it follows from."""
    if any(source.name not in registry for source in owner.sources):
        return {}
    return {name: owner.computed(lambda source: elements(as_data(source, registry[source])))}


def _owner(graph: Graph, name: str) -> Weight | None:
    """The weight that a name stands for; of a part of one, the whole."""
    owner = graph.weight(name)
    return owner.whole if isinstance(owner, Shard) else owner


def _data(name: str, value: Value, owner: Weight | None) -> WeightData:
    """A value, and how it is encoded: it says so itself, or of bytes the weight does."""
    try:
        data = as_data(name, value)
    except ValueError as error:
        raise ValueError(f"weight {name!r}: {error}") from None
    encoding = owner.quantization_encoding if owner is not None else None
    is_bytes = data.quantization_encoding is None and data.dtype is DType.uint8
    if owner is None or encoding is None or not is_bytes:
        return data
    return WeightData(data.data, name, owner.dtype, owner.shape.static(), encoding)
