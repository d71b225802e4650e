"""Convolutional networks in float32 with random weights: maxtool beside onnxruntime and OpenVINO.

ResNet-50, MobileNetV2 and V3 (large) and EfficientNet-B0 as their papers have them, for images of
224 x 224, with batch norms folded. Each is described once, and built as a graph of operations and
as an ONNX file; outputs have to agree. OpenVINO is told float32, as it would take bfloat16 by
itself where the CPU has it. Sides run in processes of their own that take turns, a few calls each.

    python benchmarks/convnets.py --peer-python PATH   # a Python with onnx, onnxruntime, openvino
    python benchmarks/convnets.py --nets resnet50 --batches 1 --threads 1 --cpu-time
    python benchmarks/convnets.py --nets resnet50 --int8 uint8   # quantized by onnxruntime

``--int8`` quantizes the ONNX files, activations to that type and weights to int8 with a scale for
each feature, calibrated on random images; all sides read these files. Steps make results differ by
some percent then, in each pair of sides.

``--cpu-time`` counts the processor time of a side instead of the time that passes: on a machine
that others keep busy it is the steadier figure, with one thread the only one that means something.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from checkpoints import machine, usable_cores
from convnet_shapes import NETS, SIZE, Layers
from decode import environment
from embed import has

# A tensor of a graph, or the name of one.
Value: TypeAlias = Any
CALLS, TOLERANCE = 5, 1e-3
# Differences of quantized networks, as a share of the largest result: a step here and there.
STEPS = 0.1
# What a side computes for a batch of images.
Run = Callable[[np.ndarray], np.ndarray]


def images(batch: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32)


class Operations(Layers):
    """A network as a graph of operations, channels first as in an ONNX file."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, np.ndarray] = {}

    def _weight(self, values: np.ndarray) -> Value:
        from maxtool.dtype import DType
        from maxtool.graph import Weight

        name = f"w{len(self.weights)}"
        self.weights[name] = values
        return Weight(name, DType.float32, values.shape)

    def convolved(self, x: Value, weight: np.ndarray, bias: np.ndarray, **options: int) -> Value:
        from maxtool.graph import ops

        layouts = {"input_layout": "NCHW", "filter_layout": "FCRS"}
        return ops.conv2d(x, self._weight(weight), bias=self._weight(bias), **options, **layouts)

    def activated(self, x: Value, activation: str) -> Value:
        from maxtool.graph import ops

        if activation == "relu6":
            return ops.clamp(x, 0.0, 6.0)
        if activation == "hard_sigmoid":
            return ops.clamp(x / 6.0 + 0.5, 0.0, 1.0)
        return getattr(ops, activation)(x)

    def added(self, x: Value, y: Value) -> Value:
        return x + y

    def scaled(self, x: Value, y: Value) -> Value:
        return x * y

    def pooled(self, x: Value) -> Value:
        from maxtool.graph import ops

        moved = ops.permute(x, (0, 2, 3, 1))
        return ops.permute(ops.max_pool2d(moved, 3, 2, padding=1), (0, 3, 1, 2))

    def mean(self, x: Value) -> Value:
        return x.mean(3).mean(2)

    def dense(self, x: Value, weight: np.ndarray, bias: np.ndarray) -> Value:
        from maxtool.graph import ops

        flat = ops.reshape(x, (x.shape[0], weight.shape[1]))
        return ops.linear(flat, self._weight(weight), self._weight(bias))


class OnnxNodes(Layers):
    """A network as the nodes of an ONNX file."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Value] = []
        self.initializers: list[Value] = []

    def _node(self, op: str, *inputs: str, **attributes: Value) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def _weight(self, values: np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(values, name))
        return name

    def convolved(self, x: str, weight: np.ndarray, bias: np.ndarray, **options: int) -> str:
        stride, padding = options["stride"], options["padding"]
        attributes = {"strides": [stride] * 2, "pads": [padding] * 4, "group": options["groups"]}
        return self._node("Conv", x, self._weight(weight), self._weight(bias), **attributes)

    def activated(self, x: str, activation: str) -> str:
        if activation == "relu6":
            limits = [self._weight(np.array(limit, np.float32)) for limit in (0, 6)]
            return self._node("Clip", x, *limits)
        if activation == "silu":
            return self._node("Mul", x, self._node("Sigmoid", x))
        if activation == "hard_sigmoid":
            return self._node("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        names = {"relu": "Relu", "sigmoid": "Sigmoid", "hard_swish": "HardSwish"}
        return self._node(names[activation], x)

    def added(self, x: str, y: str) -> str:
        return self._node("Add", x, y)

    def scaled(self, x: str, y: str) -> str:
        return self._node("Mul", x, y)

    def pooled(self, x: str) -> str:
        return self._node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def mean(self, x: str) -> str:
        return self._node("GlobalAveragePool", x)

    def dense(self, x: str, weight: np.ndarray, bias: np.ndarray) -> str:
        flat = self._node("Flatten", x)
        return self._node("Gemm", flat, self._weight(weight), self._weight(bias), transB=1)


def load_maxtool(net: str, folder: Path) -> Run:
    return load_quantized(net, folder) if INT8 else load_operations(net)


def load_quantized(net: str, folder: Path) -> Run:
    from maxtool.engine import InferenceSession
    from maxtool.importers.onnx import import_model, open_model

    start = time.process_time()
    graph = import_model(open_model(folder / f"{net}.onnx")).graph
    owners = {**graph.borrowed, **graph.owners}
    weights = {name: weight.to_numpy() for name, weight in owners.items()}
    model = InferenceSession().load(graph, weights_registry=weights)
    print(f"{net}: compiled in {time.process_time() - start:.2f} s of CPU time", file=sys.stderr)
    return lambda x: model.execute(x)[0].to_numpy()


def load_operations(net: str) -> Run:
    from maxtool.dtype import DType
    from maxtool.graph import Graph, Tensor, TensorType, executor

    layers = Operations()
    kind = TensorType(DType.float32, ["batch", 3, SIZE, SIZE])
    start = time.process_time()
    graph = Graph(net, lambda x: [NETS[net](layers, x)], [kind])
    run = executor.find_executor().compile(graph, layers.weights)
    print(f"{net}: compiled in {time.process_time() - start:.2f} s of CPU time", file=sys.stderr)
    return lambda x: run(Tensor(x))[0].to_numpy()


def load_onnxruntime(net: str, folder: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = onnxruntime.InferenceSession(
        folder / f"{net}.onnx", options, providers=["CPUExecutionProvider"]
    )
    return lambda x: session.run(None, {"x": x})[0]


def load_openvino(net: str, folder: Path) -> Run:
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": THREADS,
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = openvino.Core().compile_model(folder / f"{net}.onnx", "CPU", options)
    request = model.create_infer_request()
    return lambda x: request.infer([x])[0]


LOADERS = {"maxtool": load_maxtool, "onnxruntime": load_onnxruntime, "openvino": load_openvino}
THREADS = usable_cores()
INT8: str | None = None


def quantize(net: str, folder: Path) -> None:
    """Quantize the ONNX file of a network."""
    from onnxruntime import quantization

    class Calibration(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [images(1) * scale for scale in (1.0, 0.5, 1.5)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return {"x": self._left.pop()} if self._left else None

    types = {"int8": quantization.QuantType.QInt8, "uint8": quantization.QuantType.QUInt8}
    plain = (folder / f"{net}.onnx").rename(folder / f"{net}_float32.onnx")
    quantization.quantize_static(
        plain,
        folder / f"{net}.onnx",
        Calibration(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=types[INT8],
        weight_type=quantization.QuantType.QInt8,
    )


def export(net: str, folder: Path) -> None:
    """Write a network as an ONNX file."""
    import onnx
    from onnx import TensorProto, helper

    layers = OnnxNodes()
    result = NETS[net](layers, "x")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, SIZE, SIZE])
    out = helper.make_tensor_value_info(result, TensorProto.FLOAT, ["batch", 1000])
    graph = helper.make_graph(layers.nodes, net, [given], [out], layers.initializers)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / f"{net}.onnx")


def work(arguments: argparse.Namespace) -> None:
    """Run one side: for each line with a batch, print milliseconds and the first results."""
    run = LOADERS[arguments.worker](arguments.net, arguments.folder)
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    print(json.dumps(["ready"]), flush=True)
    for line in sys.stdin:
        x = images(int(line))
        result = run(x)
        times = []
        for _ in range(CALLS):
            start = clock()
            run(x)
            times.append(1000 * (clock() - start))
        print(json.dumps([statistics.median(times), result[0, :4].tolist()]), flush=True)


class Side:
    """The process of one side."""

    def __init__(self, side: str, net: str, folder: Path, arguments: argparse.Namespace) -> None:
        python = sys.executable if side == "maxtool" else arguments.peer_python
        options = ["--worker", side, "--net", net, "--folder", str(folder)]
        options += ["--threads", str(arguments.threads)]
        options += ["--cpu-time"] if arguments.cpu_time else []
        options += ["--int8", arguments.int8] if arguments.int8 else []
        self.name = side
        self._process = subprocess.Popen(
            [python, __file__, *options],
            env=environment(arguments.threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> list[Value]:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended")
        return json.loads(line)

    def measured(self, batch: int) -> tuple[float, list[float]]:
        print(batch, file=self._process.stdin, flush=True)
        return tuple(self._read())

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def compare(net: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Print a line for each batch: medians, and the faster of two peers divided by ours."""
    script = [arguments.peer_python, __file__, "--worker", "export", "--net", net]
    script += ["--int8", arguments.int8] if arguments.int8 else []
    subprocess.run([*script, "--folder", str(folder)], check=True)
    present = [name for name in LOADERS if name == "maxtool" or has(arguments.peer_python, name)]
    sides = [Side(name, net, folder, arguments) for name in present]
    for batch in arguments.batches:
        rounds = [[side.measured(batch) for side in sides] for _ in range(arguments.rounds)]
        results = np.array([result for _, result in rounds[0]])
        share = STEPS if arguments.int8 else TOLERANCE
        if not np.allclose(results, results[0], atol=share * np.abs(results).max()):
            raise SystemExit(f"{net}: sides do not agree: {results}")
        times = np.array([[figure for figure, _ in one] for one in rounds])
        medians = np.median(times, 0)
        ratio = np.median(times[:, 1:].min(1) / times[:, 0])
        listed = ", ".join(
            f"{side.name} {time:.2f}" for side, time in zip(sides, medians, strict=True)
        )
        print(f"{net:>16} x {batch}: {listed}; {ratio:.2f} of the faster peer", flush=True)
    for side in sides:
        side.end()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--cpu-time", action="store_true", help="count processor time")
    parser.add_argument("--int8", choices=["int8", "uint8"], help="quantize; type of activations")
    parser.add_argument("--worker", choices=["export", *LOADERS], help=argparse.SUPPRESS)
    parser.add_argument("--net", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    global THREADS, INT8
    THREADS, INT8 = arguments.threads, arguments.int8
    if arguments.worker == "export":
        export(arguments.net, arguments.folder)
        if INT8:
            quantize(arguments.net, arguments.folder)
    elif arguments.worker:
        work(arguments)
    else:
        clock = "processor time" if arguments.cpu_time else "time that passes"
        print(f"machine {machine()}\n{arguments.threads} threads; milliseconds of {clock}")
        with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
            for net in arguments.nets:
                compare(net, Path(scratch), arguments)


if __name__ == "__main__":
    main()
