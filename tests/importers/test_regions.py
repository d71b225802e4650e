"""Regions of images, sampled into bins, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.importers.beside_onnxruntime import require_equal
from tests.importers.models import model, value

pytestmark = pytest.mark.peers
RANDOM = np.random.default_rng(3)
ROIS = np.array(
    [[0, 0, 4, 4], [1, 2, 6, 5], [2, 2, 2.1, 2.2], [-3, -2, 9, 9], [5, 5, 3, 3], [0, 0, 13, 11]],
    np.float32,
)
INPUTS = {
    "x": RANDOM.normal(size=(2, 3, 6, 7)).astype(np.float32),
    "rois": ROIS,
    "images": np.array([0, 1, 0, 1, 1, 0]),
}


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("coordinates", [None, "half_pixel", "output_half_pixel"])
def test_regions_are_sampled(
    mode: str, ratio: int, coordinates: str | None, tmp_path: Path
) -> None:
    """Regions outside of the image, smaller than a pixel, and with ends in the wrong order."""
    options = {} if coordinates is None else {"coordinate_transformation_mode": coordinates}
    node = helper.make_node(
        "RoiAlign", [*INPUTS], ["y"], mode=mode, sampling_ratio=ratio, spatial_scale=0.5,
        output_height=2, output_width=3, **options,
    )  # fmt: skip
    infos = [
        value("x", ["n", 3, "h", "w"]),
        value("rois", ["k", 4]),
        value("images", ["k"], TensorProto.INT64),
    ]
    proto = model([node], infos, ["y"], opset=10 if coordinates is None else 16)
    require_equal(proto, INPUTS, tmp_path, compiled=ratio == 2)
