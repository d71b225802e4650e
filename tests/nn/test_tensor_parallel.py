"""One graph for each of several devices: which part of each weight, and where they meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from maxtool.architectures import Decoder, build
from maxtool.dtype import DType
from maxtool.errors import ConfigurationError
from maxtool.graph import CallNode, Graph, Tensor, TensorType, ops
from maxtool.nn import Linear, Module, tensor_parallel
from maxtool.nn.tensor_parallel import Role
from maxtool.nn.tracing import trace
from tests.architectures.decoders import CONFIG

F32 = DType.float32
IDS = TensorType(DType.int64, ["batch", "seq"])


class MLP(Module[[Tensor], Tensor]):
    def __init__(self, inner: int = 6) -> None:
        self.up, self.down = Linear(4, inner, has_bias=True), Linear(inner, 4, has_bias=True)
        self.up.role, self.down.role = Role.OUTPUTS, Role.INPUTS
        self.head = Linear(4, 10)
        self.head.role = Role.GATHERED

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.down(ops.relu(self.up(x))))


def collectives(graph: Graph) -> list[str]:
    inner = [name for one in graph.subgraphs.values() for name in collectives(one)]
    own = [node.op for node in graph.nodes if not isinstance(node, CallNode)]
    return inner + [op for op in own if op.startswith("all_")]


def test_layers_say_by_their_role_which_part_they_have() -> None:
    model = MLP()
    plan = tensor_parallel.split(model, 2)
    assert {name: strategy.axis for name, strategy in plan.items()} == {
        "up.weight": 0,
        "up.bias": 0,
        "down.weight": 1,
        "down.bias": None,
        "head.weight": 0,
    }
    assert {strategy.num_devices for strategy in plan.values()} == {2}
    assert all(not weight.shards for weight in model.raw_state_dict().values())


def test_the_graph_has_parts_of_the_weights_by_their_names() -> None:
    model = MLP()
    with tensor_parallel.traced_device(model, 2):
        graph = trace(model, "main", [TensorType(F32, ["n", 4])])
    shapes = {name: tuple(value.shape) for name, value in graph.weight_values.items()}
    assert shapes == {
        "up.weight": (3, 4),
        "up.bias": (3,),
        "down.weight": (4, 3),
        "down.bias": (4,),
        "head.weight": (5, 4),
    }
    assert collectives(graph) == ["all_reduce", "all_gather"]
    assert graph.outputs[0].type == TensorType(F32, ["n", 10])
    assert collectives(trace(model, "main", [TensorType(F32, ["n", 4])])) == []


def test_parts_that_differ_are_listed() -> None:
    with pytest.raises(ValueError, match=r"(?s)no 4 equal parts.*'up.weight': 6.*'down.weight': 6"):
        tensor_parallel.split(MLP(), 4)


def test_outputs_that_all_get_are_whole_where_they_make_no_equal_parts() -> None:
    assert tensor_parallel.split(MLP(), 3)["head.weight"].axis is None


def test_one_device_has_everything() -> None:
    model = MLP()
    with tensor_parallel.traced_device(model, 1):
        graph = trace(model, "main", [TensorType(F32, ["n", 4])])
    assert collectives(graph) == []


def test_what_is_added_up_and_gathered() -> None:
    kind = TensorType(F32, ["n", 2, 3])
    graph = Graph("main", lambda x: [ops.all_reduce(x, 2), ops.all_gather(x, 2)], [kind])
    assert [value.type for value in graph.outputs] == [kind, TensorType(F32, ["n", 2, 6])]
    with pytest.raises(ValueError, match=r"all_reduce\(int64\[2\]\): operands are float32"):
        ops.all_reduce(Tensor(np.arange(2)), 2)
    assert ops.all_reduce(Tensor([1.0]), 1).to_numpy() == [1]


# decoders


def split(extra: dict[str, Any], count: int) -> tuple[Decoder, Graph]:
    model: Decoder = build("decoder", CONFIG | extra)
    with model.split(count):
        (entry,) = (one for one in model.entries() if one.name == "decode")
        return model, trace(model, "decode", entry.types, entry.function)


def test_a_decoder_has_its_share_of_the_heads() -> None:
    model, graph = split({}, 2)
    shapes = {name: tuple(value.shape) for name, value in graph.weight_values.items()}
    assert shapes["layers.0.attn.q.weight"] == (8, 8)
    assert shapes["layers.2.attn.k.weight"] == (4, 8)
    assert shapes["layers.1.attn.o.weight"] == (8, 8)
    assert shapes["layers.1.mlp.down.weight"] == (8, 6)
    assert graph.inputs[2].shape[1] == 1  # of two heads of keys
    assert len(graph.subgraphs) == 1
    assert collectives(graph) == ["all_reduce", "all_reduce"]
    (whole,) = (one for one in model.entries() if one.name == "decode")
    assert next(iter(whole.state.values())).shape[1] == 2


def test_a_single_head_of_keys_is_on_every_device() -> None:
    _, graph = split({"n_kv_heads": 1}, 2)
    assert tuple(graph.weight_values["layers.0.attn.k.weight"].shape) == (4, 8)
    assert graph.inputs[2].shape[1] == 1


def test_a_tied_table_is_whole() -> None:
    _, graph = split({"vocab_size": 12, "tie_word_embeddings": True}, 2)
    assert tuple(graph.weight_values["embed.weight"].shape) == (12, 8)
    _, graph = split({"vocab_size": 12}, 2)
    assert tuple(graph.weight_values["lm_head.weight"].shape) == (6, 8)


@pytest.mark.parametrize(
    ("extra", "count", "problems"),
    [
        ({}, 3, ["n_heads is 4", "n_kv_heads is 2"]),
        ({"n_kv_heads": 4, "intermediate_size": 14}, 4, ["intermediate_size is 14"]),
        ({"qk_norm": "full"}, 2, ["qk_norm is 'full'"]),
        ({"gate_sparsity": (0.0, 0.5, 0.0)}, 2, ["gate_sparsity is above 0"]),
    ],
)
def test_what_cannot_be_split_is_listed(
    extra: dict[str, Any], count: int, problems: list[str]
) -> None:
    with pytest.raises(ConfigurationError, match=f"over {count} devices") as raised:
        split(extra, count)
    assert [problem.split(",")[0].split(":")[0] for problem in raised.value.problems] == problems
