"""ONNX: a model, with or without a file of data beside it."""

from __future__ import annotations

import numpy as np
import onnx
from harness import NEXT, Target, put, read_checkpoint, run
from onnx import TensorProto, helper, numpy_helper

DATA = "data.bin"


def external(name: str, offset: int, length: int) -> TensorProto:
    result = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[length // 4])
    result.data_location = TensorProto.EXTERNAL
    for key, value in {"location": DATA, "offset": str(offset), "length": str(length)}.items():
        result.external_data.add(key=key, value=value)
    return result


def model(*tensors: TensorProto) -> bytes:
    inner = helper.make_graph([], "inner", [], [], [numpy_helper.from_array(np.ones(2), "i")])
    node = helper.make_node("If", ["c"], ["o"], "node", then_branch=inner)
    graph = helper.make_graph([node], "graph", [], [], list(tensors))
    opsets = [helper.make_opsetid("", 20)]
    result = helper.make_model(graph, producer_name="seed", opset_imports=opsets)
    helper.set_model_props(result, {"key": "value"})
    return result.SerializeToString()


def seeds() -> list[bytes]:
    raw = numpy_helper.from_array(np.ones((2, 3), np.float32), "raw")
    listed = helper.make_tensor("listed", TensorProto.FLOAT, [2], [1.0, 2.0])
    varints = helper.make_tensor("varints", TensorProto.INT64, [3], [1, -1, 1 << 40])
    halves = helper.make_tensor("halves", TensorProto.FLOAT16, [2], [1.0, 2.0])
    beside = model(external("a", 0, 32), external("b", 32, 32))
    assert onnx.load_from_string(beside)
    return [model(raw, listed), model(varints, halves), NEXT.join([beside, bytes(64)])]


def read(data: bytes) -> None:
    read_checkpoint(put(("x.onnx", DATA), data))


TARGET = Target(seeds, read, [b"location", b"offset", b"length", b"../outside", b"link", b"x.onnx"])

if __name__ == "__main__":
    run(TARGET)
