"""Detectors as ONNX files with random weights: maxtool beside onnxruntime and OpenVINO.

One finds objects in images of 640 x 640, with the shape of YOLOv8n: blocks of which a part of the
channels goes on by itself, poolings of several sizes, scales joined by upsampling, distances as
distributions over 16 steps, and boxes in coordinates of the image. The other says where somebody
speaks, with the shape of Silero's VAD: a Fourier transform as a convolution, convolutions in time
and an LSTM, 32 milliseconds in a call, whose state goes into the next. Files say the batch. maxtool
runs the artifacts that ``maxtool compile`` makes of them. All in float32, which OpenVINO is told;
outputs have to agree. Sides run in processes of their own that take turns.

    python benchmarks/detectors.py --peer-python PATH   # a Python with onnx, onnxruntime, openvino
    python benchmarks/detectors.py --nets speech --batches 1 --rounds 9
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
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
# The shapes of inputs or outputs by name.
Shapes: TypeAlias = dict[str, list[int]]
Arrays: TypeAlias = dict[str, np.ndarray]
Run: TypeAlias = Callable[[Arrays], Sequence[np.ndarray]]
TOLERANCE = 1e-3
SIDE, CLASSES, STEPS = 640, 80, 16
STRIDES = (8, 16, 32)
SAMPLES, CONTEXT, WINDOW, HOP, HIDDEN = 512, 64, 256, 128, 128


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


class Yolo(Nodes):
    """Layers of a detector of objects."""

    def conv(self, x: str, channels: int, features: int, size: int = 1, stride: int = 1) -> str:
        return self._silu(self.plain(x, channels, features, size, stride))

    def plain(self, x: str, channels: int, features: int, size: int = 1, stride: int = 1) -> str:
        weights = self.drawn(features, channels, size, size), self.drawn(features)
        return self.node("Conv", x, *weights, strides=[stride] * 2, pads=[size // 2] * 4)

    def _silu(self, x: str) -> str:
        return self.node("Mul", x, self.node("Sigmoid", x))

    def split(self, x: str, channels: int, features: int, count: int, *, adds: bool) -> str:
        """Half of the channels go through ``count`` blocks, and all that comes out is joined."""
        half = features // 2
        parts = self.several("Split", 2, self.conv(x, channels, features), axis=1)
        for _ in range(count):
            y = self.conv(self.conv(parts[-1], half, half, 3), half, half, 3)
            parts.append(self.node("Add", parts[-1], y) if adds else y)
        return self.conv(self.joined(*parts), half * (count + 2), features)

    def joined(self, *parts: str) -> str:
        return self.node("Concat", *parts, axis=1)

    def pyramid(self, x: str, channels: int) -> str:
        """Join the poolings of three sizes."""
        parts = [self.conv(x, channels, channels // 2)]
        for _ in range(3):
            pooled = self.node("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4)
            parts.append(pooled)
        return self.conv(self.joined(*parts), 2 * channels, channels)

    def twice(self, x: str) -> str:
        scales = self.constant([1, 1, 2, 2])
        options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        return self.node("Resize", x, "", scales, nearest_mode="floor", **options)

    def places(self, x: str, channels: int) -> str:
        """Distributions of distances, and classes, of each place: [batch, 64 + 80, places]."""
        kinds = []
        for inner, outputs in ((4 * STEPS, 4 * STEPS), (CLASSES, CLASSES)):
            y = self.conv(self.conv(x, channels, inner, 3), inner, inner, 3)
            kinds.append(self.plain(y, inner, outputs))
        return self.node("Reshape", self.joined(*kinds), self.integers(0, 4 * STEPS + CLASSES, -1))

    def boxes(self, found: str) -> str:
        """Centres and sizes in pixels, and probabilities: [batch, 4 + 80, places]."""
        sizes = self.integers(4 * STEPS, CLASSES)
        distances, classes = self.several("Split", 2, found, sizes, axis=1)
        steps = self.node("Reshape", distances, self.integers(0, 4, STEPS, -1))
        shares = self.node("Softmax", self.node("Transpose", steps, perm=[0, 2, 1, 3]), axis=1)
        numbers = self.constant(np.arange(STEPS).reshape(1, STEPS, 1, 1))
        means = self.node("Reshape", self.node("Conv", shares, numbers), self.integers(0, 4, -1))
        before, behind = self.several("Split", 2, means, axis=1)
        at, stride = anchors()
        first = self.node("Sub", self.constant(at[None]), before)
        last = self.node("Add", self.constant(at[None]), behind)
        centre = self.node("Div", self.node("Add", first, last), self.constant(2))
        box = self.joined(centre, self.node("Sub", last, first))
        pixels = self.node("Mul", box, self.constant(stride))
        return self.joined(pixels, self.node("Sigmoid", classes))


def anchors() -> tuple[np.ndarray, np.ndarray]:
    """Centres of all places in steps of their scale, [2, places], and the steps in pixels."""
    at, steps = [], []
    for stride in STRIDES:
        axis = np.arange(SIDE // stride) + 0.5
        y, x = np.meshgrid(axis, axis, indexing="ij")
        at.append(np.stack([x.ravel(), y.ravel()]))
        steps.append(np.full(x.size, stride))
    return np.concatenate(at, 1), np.concatenate(steps)


def write_objects(path: Path, batch: int) -> None:
    net = Yolo()
    x = net.conv(net.conv("images", 3, 16, 3, 2), 16, 32, 3, 2)
    x = net.split(x, 32, 32, 1, adds=True)
    fine = net.split(net.conv(x, 32, 64, 3, 2), 64, 64, 2, adds=True)
    middle = net.split(net.conv(fine, 64, 128, 3, 2), 128, 128, 2, adds=True)
    coarse = net.split(net.conv(middle, 128, 256, 3, 2), 256, 256, 1, adds=True)
    coarse = net.pyramid(coarse, 256)
    up = net.split(net.joined(net.twice(coarse), middle), 384, 128, 1, adds=False)
    fine = net.split(net.joined(net.twice(up), fine), 192, 64, 1, adds=False)
    down = net.joined(net.conv(fine, 64, 64, 3, 2), up)
    middle = net.split(down, 192, 128, 1, adds=False)
    down = net.joined(net.conv(middle, 128, 128, 3, 2), coarse)
    coarse = net.split(down, 384, 256, 1, adds=False)
    scales = [net.places(x, channels) for x, channels in ((fine, 64), (middle, 128), (coarse, 256))]
    boxes = net.boxes(net.node("Concat", *scales, axis=2))
    places = sum((SIDE // stride) ** 2 for stride in STRIDES)
    net.save(path, {"images": [batch, 3, SIDE, SIDE]}, {boxes: [batch, 4 + CLASSES, places]})


def write_speech(path: Path, batch: int) -> None:
    net, bins = Nodes(), WINDOW // 2 + 1
    line = net.node("Unsqueeze", "input", net.integers(1))
    padded = net.node("Pad", line, net.integers(0, 0, 0, 0, 0, CONTEXT), mode="reflect")
    angles = np.outer(np.arange(bins), np.arange(WINDOW)) * (-2 * np.pi / WINDOW)
    basis = np.concatenate([np.cos(angles), np.sin(angles)]) * np.hanning(WINDOW)
    waves = net.node("Conv", padded, net.constant(basis[:, None]), strides=[HOP])
    real, imaginary = net.several("Split", 2, waves, axis=1)
    squares = (net.node("Mul", each, each) for each in (real, imaginary))
    x, channels = net.node("Sqrt", net.node("Add", *squares)), bins
    for features, stride in ((128, 1), (64, 2), (64, 2), (HIDDEN, 1)):
        weights = net.drawn(features, channels, 3), net.drawn(features)
        x = net.node("Relu", net.node("Conv", x, *weights, strides=[stride], pads=[1, 1]))
        channels = features
    steps = net.node("Transpose", x, perm=[2, 0, 1])
    before = net.several("Split", 2, "state", axis=0)
    gates = [net.drawn(1, 4 * HIDDEN, HIDDEN) for _ in range(2)]
    bias = net.constant(np.zeros((1, 8 * HIDDEN)))
    operands = (steps, *gates, bias, "", *before)
    _, hidden, cell = net.several("LSTM", 3, *operands, hidden_size=HIDDEN)
    last = net.node("Transpose", net.node("Relu", hidden), perm=[1, 2, 0])
    score = net.node("Conv", last, net.drawn(1, HIDDEN, 1), net.drawn(1))
    speech = net.node("Squeeze", net.node("Sigmoid", score), net.integers(2))
    state = net.node("Concat", hidden, cell, axis=0)
    shapes = {"input": [batch, SAMPLES + CONTEXT], "state": [2, batch, HIDDEN]}
    net.save(path, shapes, {speech: [batch, 1], state: [2, batch, HIDDEN]})


def objects_inputs(batch: int) -> Arrays:
    images = np.random.default_rng(1).random((batch, 3, SIDE, SIDE), np.float32)
    return {"images": images}


def speech_inputs(batch: int) -> Arrays:
    rng = np.random.default_rng(1)
    sound = rng.standard_normal((batch, SAMPLES + CONTEXT)).astype(np.float32) * 0.1
    return {"input": sound, "state": np.zeros((2, batch, HIDDEN), np.float32)}


# How each is written, and what it is called with.
NETS = {"objects": (write_objects, objects_inputs), "speech": (write_speech, speech_inputs)}


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


def work(arguments: argparse.Namespace) -> None:
    """Run one side: print milliseconds and some results."""
    ((net,), (batch,)) = arguments.nets, arguments.batches
    run, arrays = LOADERS[arguments.worker](arguments.file), NETS[net][1](batch)
    first = np.ravel(run(arrays)[0])
    shown = first[:: max(1, first.size // 16)].tolist()
    print(json.dumps([milliseconds(partial(run, arrays), time.perf_counter), shown]))


def compare(net: str, batch: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Print a line: medians, and the faster of two peers divided by ours."""
    file = folder / f"{net}_{batch}.onnx"
    NETS[net][0](file, batch)
    command = [sys.executable, "-m", "maxtool", "compile", file, "-o", file.with_suffix("")]
    checked(subprocess.run(command, check=False, capture_output=True))
    present = [name for name in LOADERS if name == "maxtool" or has(arguments.peer_python, name)]
    options = ["--file", str(file), "--nets", net, "--batches", str(batch)]
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
    print(f"{net:>8} x {batch}: {listed}; {ratio:.2f} of the faster peer", flush=True)


def _side(name: str, options: list[str], peer_python: str) -> list[Value]:
    python = sys.executable if name == "maxtool" else peer_python
    command = [python, __file__, "--worker", name, *options]
    own = environment(usable_cores())
    done = subprocess.run(command, env=own, check=False, capture_output=True, text=True)
    return list(json.loads(checked(done).stdout.splitlines()[-1]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--worker", choices=list(LOADERS), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.worker:
        work(arguments)
        return
    print(f"machine {machine()}\n{usable_cores()} threads; milliseconds of time that passes")
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        for net in arguments.nets:
            for batch in arguments.batches:
                compare(net, batch, Path(scratch), arguments)


if __name__ == "__main__":
    main()
