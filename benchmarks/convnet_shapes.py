"""Convolutional networks, described for anything that builds layers; weights are random.

ResNet-50 with its stride in the 3 x 3 convolution (arXiv:1512.03385, as torchvision has it),
MobileNetV2 (arXiv:1801.04381), MobileNetV3-Large (arXiv:1905.02244), EfficientNet-B0
(arXiv:1905.11946).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

# What stands for a tensor while layers are built.
Value: TypeAlias = Any
SIZE, CLASSES = 224, 1000


class Layers(ABC):
    """Builder of layers; it draws weights that keep the size of activations."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self._channels: dict[int, int] = {}
        self._kept: list[Value] = []

    def channels(self, x: Value) -> int:
        return self._channels.get(id(x), 3)

    def keep(self, x: Value, channels: int) -> Value:
        self._kept.append(x)
        self._channels[id(x)] = channels
        return x

    def drawn(self, *shape: int) -> np.ndarray:
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        return (self._random.standard_normal(shape) * scale).astype(np.float32)

    def conv(
        self,
        x: Value,
        features: int,
        size: int = 1,
        stride: int = 1,
        activation: str | None = None,
        depthwise: bool = False,
    ) -> Value:
        channels = self.channels(x)
        groups = channels if depthwise else 1
        weight, bias = self.drawn(features, channels // groups, size, size), self.drawn(features)
        options = {"stride": stride, "padding": size // 2, "groups": groups}
        y = self.convolved(x, weight, bias, **options)
        return self.keep(self.activated(y, activation) if activation else y, features)

    def add(self, x: Value, y: Value, activation: str | None = None) -> Value:
        total = self.added(x, y)
        if activation:
            total = self.activated(total, activation)
        return self.keep(total, self.channels(x))

    def max_pool(self, x: Value) -> Value:
        return self.keep(self.pooled(x), self.channels(x))

    def squeezed(self, x: Value, inner: int, first: str, second: str) -> Value:
        """Scale the channels by what a small network says of their means."""
        channels = self.channels(x)
        mean = self.keep(self.mean(x), channels)
        scale = self.conv(self.conv(mean, inner, activation=first), channels, activation=second)
        return self.keep(self.scaled(x, scale), channels)

    def head(self, x: Value, classes: int = CLASSES) -> Value:
        channels = self.channels(x)
        return self.dense(self.mean(x), self.drawn(classes, channels), self.drawn(classes))

    @abstractmethod
    def convolved(
        self, x: Value, weight: np.ndarray, bias: np.ndarray, **options: int
    ) -> Value: ...

    @abstractmethod
    def activated(self, x: Value, activation: str) -> Value: ...

    @abstractmethod
    def added(self, x: Value, y: Value) -> Value: ...

    @abstractmethod
    def scaled(self, x: Value, y: Value) -> Value: ...

    @abstractmethod
    def pooled(self, x: Value) -> Value: ...

    @abstractmethod
    def mean(self, x: Value) -> Value: ...

    @abstractmethod
    def dense(self, x: Value, weight: np.ndarray, bias: np.ndarray) -> Value: ...


def resnet50(net: Layers, x: Value) -> Value:
    x = net.max_pool(net.conv(x, 64, 7, 2, "relu"))
    for stage, count in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = net.conv(net.conv(x, width, activation="relu"), width, 3, stride, "relu")
            shortcut = x if block else net.conv(x, 4 * width, 1, stride)
            x = net.add(net.conv(y, 4 * width), shortcut, "relu")
    return net.head(x)


def inverted(
    net: Layers,
    x: Value,
    features: int,
    inner: int,
    size: int,
    stride: int,
    activation: str,
    squeeze: tuple[int, str, str] | None = None,
) -> Value:
    """A residual block that is wide inside."""
    y = net.conv(x, inner, activation=activation) if inner != net.channels(x) else x
    y = net.conv(y, inner, size, stride, activation, depthwise=True)
    if squeeze:
        y = net.squeezed(y, *squeeze)
    y = net.conv(y, features)
    return net.add(y, x) if stride == 1 and features == net.channels(x) else y


def mobilenet_v2(net: Layers, x: Value) -> Value:
    x = net.conv(x, 32, 3, 2, "relu6")
    blocks = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for widening, features, count, stride in [*blocks, (6, 160, 3, 2), (6, 320, 1, 1)]:
        for block in range(count):
            inner = widening * net.channels(x)
            x = inverted(net, x, features, inner, 3, 1 if block else stride, "relu6")
    return net.head(net.conv(x, 1280, activation="relu6"))


def mobilenet_v3(net: Layers, x: Value) -> Value:
    x = net.conv(x, 16, 3, 2, "hard_swish")
    relu, swish = "relu", "hard_swish"
    # Size, inner width, features, whether squeezed, activation, stride.
    blocks = [(3, 16, 16, 0, relu, 1), (3, 64, 24, 0, relu, 2), (3, 72, 24, 0, relu, 1)]
    blocks += [(5, 72, 40, 1, relu, 2), (5, 120, 40, 1, relu, 1), (5, 120, 40, 1, relu, 1)]
    blocks += [(3, 240, 80, 0, swish, 2), (3, 200, 80, 0, swish, 1), (3, 184, 80, 0, swish, 1)]
    blocks += [(3, 184, 80, 0, swish, 1), (3, 480, 112, 1, swish, 1), (3, 672, 112, 1, swish, 1)]
    blocks += [(5, 672, 160, 1, swish, 2), (5, 960, 160, 1, swish, 1), (5, 960, 160, 1, swish, 1)]
    for size, inner, features, squeezed, activation, stride in blocks:
        rounded = max(8, (inner // 4 + 4) // 8 * 8)
        squeeze = (rounded, "relu", "hard_sigmoid") if squeezed else None
        x = inverted(net, x, features, inner, size, stride, activation, squeeze)
    return net.head(net.conv(x, 960, activation=swish))


def efficientnet_b0(net: Layers, x: Value) -> Value:
    x = net.conv(x, 32, 3, 2, "silu")
    blocks = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)]
    blocks += [(6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    for widening, features, count, stride, size in blocks:
        for block in range(count):
            channels = net.channels(x)
            squeeze = (max(1, channels // 4), "silu", "sigmoid")
            step = 1 if block else stride
            x = inverted(net, x, features, widening * channels, size, step, "silu", squeeze)
    return net.head(net.conv(x, 1280, activation="silu"))


NETS: dict[str, Callable[[Layers, Value], Value]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "efficientnet_b0": efficientnet_b0,
}
