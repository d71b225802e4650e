"""An MLP and a stack of decoder layers, written once in names that MAX and maxtool share.

``modules.py`` runs this in a process of its own for each figure, with the Python of either package:

    python benchmarks/stack.py maxtool mlp
    python benchmarks/stack.py max stack --layers 8 --subgraph

It prints one line of JSON: seconds of importing, tracing, compiling (with loading the weights),
CPU seconds of the three, and seconds of one run for each size of the input.
"""

# ruff: noqa: ANN401

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

HIDDEN, INNER, HEADS = 512, 1536, 8
MLP_WIDTHS = (1024, 4096, 1024)
BATCHES = (1, 64)  # rows of the MLP
LENGTHS = (1, 128)  # tokens of the stack
SECONDS = 1.5  # of runs for each size


def package(name: str) -> SimpleNamespace:
    """The names this file uses, from one of the two packages."""
    graph = importlib.import_module(f"{name}.graph")
    return SimpleNamespace(
        name=name,
        nn=importlib.import_module(f"{name}.nn"),
        ops=graph.ops,
        graph=graph,
        float32=importlib.import_module(f"{name}.dtype").DType.float32,
        cpu=graph.DeviceRef.CPU(),
        session=importlib.import_module(f"{name}.engine").InferenceSession,
        devices=[importlib.import_module(f"{name}.driver").CPU()],
    )


def layers(api: SimpleNamespace) -> SimpleNamespace:
    """The classes of the models, as modules of that package."""
    nn, ops = api.nn, api.ops

    class Linear(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.weight = api.graph.Weight("weight", api.float32, (outputs, inputs), api.cpu)

        def __call__(self, x: Any) -> Any:
            return x @ self.weight.T

    class Norm(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.weight = api.graph.Weight("weight", api.float32, (width,), api.cpu)

        def __call__(self, x: Any) -> Any:
            return ops.rms_norm(x, self.weight, 1e-5)

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width, inner, out = MLP_WIDTHS
            self.up, self.down = Linear(width, inner), Linear(inner, out)

        def __call__(self, x: Any) -> Any:
            return self.down(ops.silu(self.up(x)))

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = Linear(HIDDEN, HIDDEN), Linear(HIDDEN, HIDDEN)
            self.v, self.o = Linear(HIDDEN, HIDDEN), Linear(HIDDEN, HIDDEN)

        def __call__(self, x: Any, mask: Any) -> Any:
            batch, length = x.shape[0], x.shape[1]
            sizes = [batch, length, HEADS, HIDDEN // HEADS]
            query, key, value = (
                ops.permute(ops.reshape(part(x), sizes), [0, 2, 1, 3])
                for part in (self.q, self.k, self.v)
            )
            scores = query @ ops.permute(key, [0, 1, 3, 2]) * (HIDDEN // HEADS) ** -0.5
            mixed = ops.permute(ops.softmax(scores + mask) @ value, [0, 2, 1, 3])
            return self.o(ops.reshape(mixed, [batch, length, HIDDEN]))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn_norm, self.attn, self.mlp_norm = Norm(HIDDEN), Attention(), Norm(HIDDEN)
            self.gate, self.up = Linear(HIDDEN, INNER), Linear(HIDDEN, INNER)
            self.down = Linear(INNER, HIDDEN)

        def __call__(self, x: Any, mask: Any) -> Any:
            x = x + self.attn(self.attn_norm(x), mask)
            inner = self.mlp_norm(x)
            return x + self.down(ops.silu(self.gate(inner)) * self.up(inner))

    return SimpleNamespace(MLP=MLP, Layer=Layer)


def stack(api: SimpleNamespace, depth: int, subgraph: bool) -> tuple[Any, Any]:
    """The stack and its graph: a call of one subgraph for each layer, or all of them in line."""
    layer_class = layers(api).Layer

    class Stack(api.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            for index in range(depth):
                setattr(self, f"layer{index}", layer_class())

        def __call__(self, x: Any, mask: Any) -> Any:
            shared = None
            if subgraph:
                given = [x, mask] if api.name == "max" else [x.type, mask.type]
                shared = self.layer0.build_subgraph("layer", given, weight_prefix="layer0.")
            for index in range(depth):
                if shared is not None:
                    x = api.ops.call(shared, x, mask, prefix=f"layer{index}.")[0]
                else:
                    x = getattr(self, f"layer{index}")(x, mask)
            return x

    model = Stack()
    kinds = [
        api.graph.TensorType(api.float32, ["batch", "seq", HIDDEN], api.cpu),
        api.graph.TensorType(api.float32, ["seq", "seq"], api.cpu),
    ]
    return model, lambda: api.graph.Graph("stack", model, kinds)


def mlp(api: SimpleNamespace) -> tuple[Any, Any]:
    """The MLP and its graph."""
    model = layers(api).MLP()
    input_type = api.graph.TensorType(api.float32, ["batch", MLP_WIDTHS[0]], api.cpu)
    return model, lambda: api.graph.Graph("mlp", model, [input_type])


def inputs(what: str) -> dict[str, list[np.ndarray]]:
    """Return the inputs by name, for each size."""
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    if what == "mlp":
        return {f"batch {rows}": [normal(rows, MLP_WIDTHS[0])] for rows in BATCHES}
    return {
        f"seq {length}": [
            normal(1, length, HIDDEN),
            np.triu(np.full((length, length), -1e9, np.float32), 1),
        ]
        for length in LENGTHS
    }


def weights(model: Any) -> dict[str, np.ndarray]:
    """Random weights of the usual size, the same for both packages."""
    rng = np.random.default_rng(0)
    declared = {
        name: tuple(map(int, weight.shape)) for name, weight in model.raw_state_dict().items()
    }
    return {
        name: np.ones(declared[name], np.float32)
        if len(declared[name]) == 1
        else rng.standard_normal(declared[name], dtype=np.float32) / 40
        for name in sorted(declared)
    }


def run_seconds(model: Any, given: list[Any], clock: Callable[[], float]) -> float:
    """The median of the runs that fit into the time, after two that do not count.

    With one thread it is CPU time, which other processes disturb less than they do wall time.
    """
    for _ in range(2):
        model.execute(*given)
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < SECONDS or not times:
        start = clock()
        model.execute(*given)
        times.append(clock() - start)
    return statistics.median(times)


def code_generation(graph: Any) -> float:
    """CPU seconds of lowering and compiling alone, without any weight; maxtool only."""
    from maxtool.compiler.compiling_executor import Program
    from maxtool.compiler.targets import Targets

    start = time.process_time()
    Program([graph], Targets())
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=["max", "maxtool"])
    parser.add_argument("model", choices=["mlp", "stack"])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--subgraph", action="store_true")
    parser.add_argument("--codegen", action="store_true", help="code generation only")
    parser.add_argument("--threads", type=int, help="of the runs; all cores by default")
    arguments = parser.parse_args()
    if arguments.threads:  # before the packages count the cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-arguments.threads :])
    figures: dict[str, Any] = {}
    begin, busy = time.perf_counter(), time.process_time()
    api = package(arguments.package)
    figures["import"] = time.perf_counter() - begin
    importing = time.process_time() - busy
    wide = arguments.model == "stack"
    model, build = stack(api, arguments.layers, arguments.subgraph) if wide else mlp(api)
    state = weights(model)
    model.load_state_dict(state)
    begin, busy = time.perf_counter(), time.process_time()
    graph = build()
    figures["trace"] = time.perf_counter() - begin
    if arguments.codegen:
        figures["codegen"] = code_generation(graph)
        print(json.dumps(figures))
        return
    begin = time.perf_counter()
    session = api.session(devices=api.devices)
    loaded = session.load(graph, weights_registry=model.state_dict())
    figures["compile"] = time.perf_counter() - begin
    figures["cpu"] = importing + time.process_time() - busy
    figures["sums"] = {}
    figures["run"] = {}
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    for name, arrays in inputs(arguments.model).items():
        (out,) = loaded.execute(*arrays)
        figures["sums"][name] = float(np.abs(np.asarray(out.to_numpy())).sum())
        figures["run"][name] = run_seconds(loaded, arrays, clock)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
