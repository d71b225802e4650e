"""Detectors as ONNX files with random weights: maxtool beside onnxruntime and OpenVINO.

One finds objects in images of 640 x 640, with the shape of YOLOv8n: blocks of which a part of the
channels goes on by itself, poolings of several sizes, scales joined by upsampling, distances as
distributions over 16 steps, and boxes in coordinates of the image. The other says where somebody
speaks, with the shape of Silero's VAD: a Fourier transform as a convolution, convolutions in time
and an LSTM, 32 milliseconds in a call, whose state goes into the next. Files say the batch. maxtool
runs the artifacts that ``maxtool compile`` makes of them.

    python benchmarks/detectors.py --peer-python PATH   # a Python with onnx, onnxruntime, openvino
    python benchmarks/detectors.py --nets speech --batches 1 --rounds 9
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_sides import Arrays, Nets, Nodes, main

SIDE, CLASSES, STEPS = 640, 80, 16
STRIDES = (8, 16, 32)
SAMPLES, CONTEXT, WINDOW, HOP, HIDDEN = 512, 64, 256, 128, 128


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


NETS: Nets = {"objects": (write_objects, objects_inputs), "speech": (write_speech, speech_inputs)}


if __name__ == "__main__":
    main(NETS, __file__, __doc__)
