"""The network of ``digits.py`` and its weights as an ONNX model.

python samples/digits/export.py --output samples/digits/digits.onnx
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

WEIGHTS = Path(__file__).with_name("digits.safetensors")
OPSET, IR_VERSION = 17, 8  # of files that every runtime of the last years reads


def layer(name: str, x: str, y: str) -> onnx.NodeProto:
    """Return a linear layer with a bias."""
    return helper.make_node("Gemm", [x, f"{name}.weight", f"{name}.bias"], [y], transB=1)


def model(weights: Path) -> onnx.ModelProto:
    """Build the model ``picture [batch, 8, 8] -> digit [batch], share [batch, 10]``."""
    tensors = [numpy_helper.from_array(array, name) for name, array in load_file(weights).items()]
    nodes = [
        helper.make_node("Flatten", ["picture"], ["pixels"]),
        layer("hidden", "pixels", "marks"),
        helper.make_node("Relu", ["marks"], ["seen"]),
        layer("digits", "seen", "scores"),
        helper.make_node("ArgMax", ["scores"], ["digit"], axis=-1, keepdims=0),
        helper.make_node("Softmax", ["scores"], ["share"], axis=-1),
    ]
    picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["batch", 8, 8])
    results = [
        helper.make_tensor_value_info("digit", TensorProto.INT64, ["batch"]),
        helper.make_tensor_value_info("share", TensorProto.FLOAT, ["batch", 10]),
    ]
    graph = helper.make_graph(nodes, "digits", [picture], results, tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="maxtool"
    )


def main() -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    proto = model(arguments.weights)
    onnx.checker.check_model(proto, full_check=True)
    arguments.output.write_bytes(proto.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
