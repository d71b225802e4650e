"""Convolutions of one kind in a row as ONNX files with random weights, beside peers.

Groups of 4, 8 and 16 channels as in ResNeXt-50, transposed ones as in decoders of images and
sounds, volumes, dilation; and images of which the file does not say the size.

    python benchmarks/layers.py --peer-python PATH   # a Python with onnx, onnxruntime, openvino
    python benchmarks/layers.py --nets groups_4 --batches 1 --rounds 9
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx_sides import Arrays, Nets, Nodes, main


@dataclass(frozen=True)
class Layers:
    """Convolutions, each followed by a ReLU."""

    sizes: Sequence[int]  # channels, and those of an image
    weights: Sequence[Sequence[int]]  # the shape of each filter
    attributes: Mapping[str, Any] = field(default_factory=dict)
    op: str = "Conv"
    any_size: bool = False  # whether the file does not say how large an image is

    def write(self, path: Path, batch: int) -> None:
        net, x = Nodes(), "x"
        for shape in self.weights:
            of_all = self.op == "Conv"
            groups = shape[0] if shape[1] == 1 and of_all else self.attributes.get("group", 1)
            attributes = {**self.attributes, "group": groups}
            if shape[2:] == (1, 1):
                attributes["pads"] = [0] * 4
            filters = net.drawn(*shape), net.drawn(shape[0 if of_all else 1])
            x = net.node("Relu", net.node(self.op, x, *filters, **attributes))
        sizes = ["height", "width"] if self.any_size else self.sizes[1:]
        net.save(path, {"x": [batch, self.sizes[0], *sizes]}, {x: None})

    def inputs(self, batch: int) -> Arrays:
        random = np.random.default_rng(1)
        return {"x": random.standard_normal((batch, *self.sizes), np.float32)}


AROUND = {"pads": [1] * 4}
LAYERS = {
    "groups_4": Layers((128, 56, 56), [(128, 4, 3, 3)] * 6, {**AROUND, "group": 32}),
    "groups_8": Layers((256, 28, 28), [(256, 8, 3, 3)] * 6, {**AROUND, "group": 32}),
    "groups_16": Layers((512, 14, 14), [(512, 16, 3, 3)] * 6, {**AROUND, "group": 32}),
    "dilated": Layers((64, 28, 28), [(64, 64, 3, 3)] * 6, {"dilations": [4, 4], "pads": [4] * 4}),
    "transposed_2": Layers((64, 56, 56), [(64, 32, 2, 2)], {"strides": [2, 2]}, "ConvTranspose"),
    "transposed_4": Layers(
        (64, 56, 56), [(64, 32, 4, 4)], {**AROUND, "strides": [2, 2]}, "ConvTranspose"
    ),
    "sounds": Layers(
        (256, 200), [(256, 128, 16)], {"strides": [8], "pads": [4, 4]}, "ConvTranspose"
    ),
    "volumes": Layers((16, 16, 32, 32), [(32, 16, 3, 3, 3)], {"pads": [1] * 6}),
    "any_3x3": Layers((64, 40, 40), [(64, 64, 3, 3)] * 6, AROUND, any_size=True),
    "any_pairs": Layers((96, 40, 40), [(96, 1, 3, 3), (96, 96, 1, 1)] * 4, AROUND, any_size=True),
}
NETS: Nets = {
    name: (partial(Layers.write, layers), partial(Layers.inputs, layers))
    for name, layers in LAYERS.items()
}


if __name__ == "__main__":
    main(NETS, __file__, __doc__)
