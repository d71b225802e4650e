"""Records of tracing, and its refusals."""

from __future__ import annotations

import pytest

from maxtool.dtype import DType
from maxtool.graph import BufferType, CallNode, Graph, Node, Tensor, TensorType, Weight, ops
from maxtool.graph.limits import least_sizes

F32 = DType.float32
ROWS = TensorType(F32, ["n", 4])
CACHE = BufferType(F32, ["batch", 2, 4, 8])
STEP = TensorType(F32, ["batch", 1, 2, 4])
POSITION = TensorType(DType.int32, [1])


def test_operations_on_traced_values_are_recorded_in_order() -> None:
    graph = Graph("g", lambda x: ops.exp(x * 2.0) + x, [ROWS])
    assert [node.op for node in graph.nodes if isinstance(node, Node)] == ["mul", "exp", "add"]
    assert graph.outputs[0].type == ROWS
    assert [constant.to_numpy().item() for constant, _ in graph.constants] == [2.0]
    assert repr(graph) == "Graph('g', [float32[n, 4]], 3 nodes)"


def test_a_traced_value_has_no_data() -> None:
    graph = Graph("g", input_types=[ROWS])
    with pytest.raises(TypeError, match="computed when the graph runs"):
        bool(graph.inputs[0])
    with pytest.raises(TypeError, match="symbolic"):
        list(graph.inputs[0])


def test_a_traced_value_is_used_while_its_graph_is_traced() -> None:
    graph = Graph("g", input_types=[ROWS])
    with pytest.raises(ValueError, match="while its graph is traced"):
        ops.exp(graph.inputs[0])
    with Graph("other"), pytest.raises(ValueError, match="belongs to graph 'g'"):
        ops.exp(graph.inputs[0])


def test_a_failed_trace_leaves_no_graph_behind() -> None:
    def fail(_: Tensor) -> Tensor:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        Graph("g", fail, [ROWS])
    assert Graph.current() is None


def test_a_weight_enters_once_by_name() -> None:
    weight = Weight("w", F32, [4])
    graph = Graph("g", lambda x: x * weight + weight, [ROWS])
    assert list(graph.weight_values) == ["w"]
    assert graph.owners == {"w": weight}


def test_two_weights_of_one_name() -> None:
    left, right = Weight("w", F32, [4]), Weight("w", F32, [4])
    with pytest.raises(ValueError, match="another weight named 'w'"):
        Graph("g", lambda x: x * left + right, [ROWS])


def test_a_buffer_is_not_read_after_it_was_overwritten() -> None:
    def stale(cache: Tensor, x: Tensor, position: Tensor) -> Tensor:
        ops.cache_write_key(cache, x, position)
        return cache + 1.0

    with pytest.raises(ValueError, match="overwritten by cache_write_key: use its result"):
        Graph("g", stale, [CACHE, STEP, POSITION])


def test_a_tensor_is_not_overwritten_so_it_may_be_read() -> None:
    plain = TensorType(F32, CACHE.shape)

    def write(cache: Tensor, x: Tensor, position: Tensor) -> list[Tensor]:
        return [ops.cache_write_key(cache, x, position), cache + 1.0]

    assert len(Graph("g", write, [plain, STEP, POSITION]).outputs) == 2


def inner() -> Graph:
    return Graph("inner", ops.cache_write_key, [CACHE, STEP, POSITION])


def test_a_subgraph_overwrites_the_buffers_it_is_given() -> None:
    callee = inner()

    def stale(cache: Tensor, x: Tensor, position: Tensor) -> Tensor:
        ops.call(callee, cache, x, position)
        return cache + 1.0

    with pytest.raises(ValueError, match="overwritten by inner"):
        Graph("g", stale, [CACHE, STEP, POSITION])


def test_a_subgraph_takes_a_buffer_only_for_a_buffer() -> None:
    callee = inner()
    plain = TensorType(F32, CACHE.shape)
    with pytest.raises(ValueError, match=r"operand 0 .* is float32\[.*, expected buffer float32"):
        Graph("g", lambda *inputs: ops.call(callee, *inputs), [plain, STEP, POSITION])


def test_a_call_of_a_subgraph() -> None:
    callee = Graph("twice", lambda x: x + x, [ROWS])
    graph = Graph("g", lambda x: ops.call(callee, *ops.call(callee, x)), [ROWS])
    assert all(isinstance(node, CallNode) and node.callee is callee for node in graph.nodes)
    assert graph.outputs[0].type == ROWS


@pytest.mark.parametrize(
    ("operands", "message"),
    [(0, "takes 1 operands, not 0"), (2, "takes 1 operands, not 2")],
)
def test_a_call_with_too_few_or_too_many_operands(operands: int, message: str) -> None:
    callee = Graph("twice", lambda x: x + x, [ROWS])
    with pytest.raises(ValueError, match=message):
        Graph("g", lambda x: ops.call(callee, *[x] * operands), [ROWS])


def test_a_call_with_an_operand_of_another_type() -> None:
    callee = Graph("twice", lambda x: x + x, [TensorType(F32, ["n", 5])])
    with pytest.raises(ValueError, match=r"is float32\[n, 4\], expected float32\[n, 5\]"):
        Graph("g", lambda x: ops.call(callee, x), [ROWS])


def test_two_subgraphs_of_one_name() -> None:
    first, second = (Graph("twice", lambda x: x + x, [ROWS]) for _ in range(2))
    with pytest.raises(ValueError, match="another subgraph named 'twice'"):
        Graph("g", lambda x: ops.call(second, *ops.call(first, x)), [ROWS])


def test_a_call_outside_a_trace() -> None:
    with pytest.raises(LookupError, match="while a graph is traced"):
        ops.call(inner())


def test_what_is_demanded_of_symbolic_sizes() -> None:
    def read(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x[2], x[-4], x[:, 0], y @ x]

    graph = Graph("g", read, [TensorType(F32, ["n", 4]), TensorType(F32, ["m", "n"])])
    assert least_sizes(graph) == {"n": 4}
    outer = Graph("o", lambda x, y: ops.call(graph, x, y), [value.type for value in graph.inputs])
    assert least_sizes(outer) == {"n": 4}
    only = Graph("p", lambda x, y: x @ y, [TensorType(F32, [2, "k"]), TensorType(F32, ["k", 3])])
    assert least_sizes(only) == {}  # a product of no terms is 0
    place = Graph("q", lambda x: ops.argmax(x), [TensorType(F32, [2, "k"])])
    assert least_sizes(place) == {"k": 1}


def test_forward_takes_what_else_is_given() -> None:
    def forward(x: Tensor, factor: float, *, plus: float) -> Tensor:
        return x * factor + plus

    graph = Graph("g", forward, [ROWS], 2.0, plus=1.0)
    assert [value.to_numpy().item() for value, _ in graph.constants] == [2.0, 1.0]
    with pytest.raises(TypeError, match="no forward to take"):
        Graph("g", input_types=[ROWS], plus=1.0)


def test_an_output_that_is_no_tensor() -> None:
    with pytest.raises(TypeError, match="output 1 of graph 'g' is a float, not a tensor"):
        Graph("g", lambda x: (x, 1.0), [ROWS])


def test_a_weight_is_added_while_the_graph_is_traced() -> None:
    weight, graph = Weight("w", F32, [4]), Graph("g", input_types=[ROWS])
    with pytest.raises(LookupError, match="'g' is not being traced"):
        graph.add_weight(weight)
    with graph:
        value = graph.add_weight(weight, force_initial_weight_on_host=True)
        assert graph.add_weight(weight) is value
        with pytest.raises(ValueError, match="another weight named 'w'"):
            graph.add_weight(Weight("w", F32, [4]))


def test_a_weight_changed_while_its_graph_is_traced() -> None:
    weight = Weight("w", F32, [4])
    with Graph("g", input_types=[ROWS]) as graph:
        graph.add_weight(weight)
        weight.shape = [5]
        with pytest.raises(ValueError, match=r"is float32\[5\] now, and was float32\[4\]"):
            ops.exp(weight)
    weight.dtype = DType.float16
    assert Graph("again", lambda: ops.exp(weight)).outputs[0].type == TensorType(weight.dtype, [5])


def test_a_subgraph_is_added_and_called() -> None:
    graph = Graph("g", input_types=[ROWS])
    double = graph.add_subgraph("double", lambda x, by: x * by, [ROWS], 2.0)
    with pytest.raises(ValueError, match="another subgraph named 'double'"):
        graph.add_subgraph("double")
    with graph:
        graph.output(*ops.call(double, graph.inputs[0]))
    assert [type(node) for node in graph.nodes] == [CallNode]
    assert Graph.current() is None


def test_a_subgraph_that_is_not_called_demands_nothing() -> None:
    graph = Graph("g", lambda x: x, [ROWS])
    last = graph.add_subgraph("last", lambda x: x[-1], [ROWS])
    assert least_sizes(graph) == {}
    with graph:
        ops.call(last, graph.inputs[0])
    assert least_sizes(graph) == {"n": 1}


def test_names_of_the_reference_api() -> None:
    import maxtool.graph as api

    assert api.TensorValue is api.BufferValue is Tensor
    assert issubclass(BufferType, api.Type) and isinstance(ROWS, api.Type)
    assert str(api.Type[int]).endswith("Type[int]")
