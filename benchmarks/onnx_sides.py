"""ONNX files with random weights: maxtool's artifacts beside onnxruntime and OpenVINO.

What benchmarks of such files have in common: how they are written, how each side runs one, and how
the sides take turns, in processes of their own. All are in float32, which OpenVINO is told; outputs
have to agree.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from checkpoints import machine, usable_cores
from decode import environment
from embed import checked, has, milliseconds
from onnx import TensorProto, helper, numpy_helper

# Numbers of a constant, an attribute of a node.
Value: TypeAlias = Any
# The shapes of inputs or outputs by name; a size may have a name.
Shapes: TypeAlias = Mapping[str, Sequence[int | str] | None]
Arrays: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Arrays], Sequence[np.ndarray]]
# Of each net how it is written for a batch, and what it is called with.
Nets: TypeAlias = Mapping[str, tuple[Callable[[Path, int], None], Callable[[int], Arrays]]]
TOLERANCE = 1e-3


class Nodes:
    """The nodes of an ONNX graph under construction."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: Value) -> str:
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: str, **attributes: Value) -> list[str]:
        names = [f"v{len(self._nodes)}_{i}" for i in range(count)]
        self._nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names

    def constant(self, values: Value, dtype: type = np.float32) -> str:
        name = f"w{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def drawn(self, *shape: int) -> str:
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        return self.constant(self._random.standard_normal(shape) * scale)

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def save(self, path: Path, inputs: Shapes, outputs: Shapes) -> None:
        def declared(named: Shapes) -> list[onnx.ValueInfoProto]:
            kind = TensorProto.FLOAT
            return [helper.make_tensor_value_info(n, kind, shape) for n, shape in named.items()]

        given, results = declared(inputs), declared(outputs)
        graph = helper.make_graph(self._nodes, path.stem, given, results, self._initializers)
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def load_maxtool(file: Path) -> Run:
    sys.path.insert(0, str(file.with_suffix("")))
    import run

    model = run.load(file.with_suffix(""))
    return lambda arrays: list(model.run("forward", arrays).values())


def load_onnxruntime(file: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = usable_cores(), 1
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(file, options, providers=providers)
    return lambda arrays: session.run(None, arrays)


def load_openvino(file: Path) -> Run:
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": usable_cores(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = openvino.Core().compile_model(file, "CPU", options)
    request = model.create_infer_request()
    return lambda arrays: list(request.infer(arrays).values())


LOADERS = {"maxtool": load_maxtool, "onnxruntime": load_onnxruntime, "openvino": load_openvino}


def work(nets: Nets, arguments: argparse.Namespace) -> None:
    """Run one side: print milliseconds and some results."""
    ((net,), (batch,)) = arguments.nets, arguments.batches
    run, arrays = LOADERS[arguments.worker](arguments.file), nets[net][1](batch)
    first = np.ravel(run(arrays)[0])
    shown = first[:: max(1, first.size // 16)].tolist()
    print(json.dumps([milliseconds(partial(run, arrays), time.perf_counter), shown]))


def compare(
    nets: Nets, script: str, net: str, batch: int, folder: Path, arguments: argparse.Namespace
) -> None:
    """Print a line: medians, and the faster of two peers divided by ours."""
    file = folder / f"{net}_{batch}.onnx"
    nets[net][0](file, batch)
    command = [sys.executable, "-m", "maxtool", "compile", file, "-o", file.with_suffix("")]
    checked(subprocess.run(command, check=False, capture_output=True))
    present = [name for name in LOADERS if name == "maxtool" or has(arguments.peer_python, name)]
    options = [script, "--file", str(file), "--nets", net, "--batches", str(batch)]
    rounds = [
        [_side(name, options, arguments.peer_python) for name in present]
        for _ in range(arguments.rounds)
    ]
    results = np.array([shown for _, shown in rounds[0]])
    if not np.allclose(results, results[0], atol=TOLERANCE * np.abs(results).max()):
        raise SystemExit(f"{net}: sides do not agree: {results}")
    times = np.array([[milliseconds for milliseconds, _ in one] for one in rounds])
    ratio = statistics.median(times[:, 1:].min(1) / times[:, 0])
    medians = zip(present, np.median(times, 0), strict=True)
    listed = ", ".join(f"{name} {time:.3f}" for name, time in medians)
    print(f"{net:>12} x {batch}: {listed}; {ratio:.2f} of the faster peer", flush=True)


def _side(name: str, options: list[str], peer_python: str) -> list[Value]:
    python = sys.executable if name == "maxtool" else peer_python
    command = [python, options[0], "--worker", name, *options[1:]]
    own = environment(usable_cores())
    done = subprocess.run(command, env=own, check=False, capture_output=True, text=True)
    return list(json.loads(checked(done).stdout.splitlines()[-1]))


def _parse(nets: Nets, doc: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", choices=list(nets), default=list(nets))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--worker", choices=list(LOADERS), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main(nets: Nets, script: str, doc: str | None) -> None:
    """Run the command line of a benchmark of such nets, a script with a docstring."""
    arguments = _parse(nets, doc)
    if arguments.worker:
        work(nets, arguments)
        return
    print(f"machine {machine()}\n{usable_cores()} threads; milliseconds of time that passes")
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        for net in arguments.nets:
            for batch in arguments.batches:
                compare(nets, script, net, batch, Path(scratch), arguments)
