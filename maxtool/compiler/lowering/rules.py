"""The lowering table: what each operation becomes, for traced and for eager use alike.

A rule takes the function being built and a node, and says what the node's results are.
"""

from __future__ import annotations

from math import prod

from tvm import relax
from tvm.ir import StringImm

from maxtool.compiler.kernels.cpu.cpu_requests import PackedEmbedding, QuantizedEmbedding
from maxtool.compiler.kernels.requests import IntegerPower, Request, Sample
from maxtool.compiler.lowering import tensor_expressions as te
from maxtool.compiler.lowering.attention_rules import ATTENTION
from maxtool.compiler.lowering.cast_rules import bitcast_rule, cast_rule
from maxtool.compiler.lowering.convolution_rules import CONVOLUTIONS
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.compiler.lowering.fused_product_rules import FUSED_PRODUCTS
from maxtool.compiler.lowering.image_rules import IMAGES
from maxtool.compiler.lowering.integer_convolution_rules import INTEGER_CONVOLUTIONS
from maxtool.compiler.lowering.move_rules import MOVING
from maxtool.compiler.lowering.permute_rules import PERMUTING
from maxtool.compiler.lowering.pointwise_rules import cast_chain, chain
from maxtool.compiler.lowering.position_rules import POSITIONS
from maxtool.compiler.lowering.product_rules import PRODUCTS
from maxtool.compiler.lowering.recurrence_rules import RECURRENCES
from maxtool.compiler.lowering.row_rules import ROWWISE
from maxtool.compiler.storage import WeightStorage
from maxtool.dtype import DType
from maxtool.graph import BufferType, Node
from maxtool.graph.ops.bits import BITWISE
from maxtool.graph.ops.comparison import COMPARISONS, LOGICAL, TESTS
from maxtool.graph.ops.elementwise import BINARY, UNARY
from maxtool.runtime.loader.collectives import ALL_GATHER, ALL_REDUCE

# The function that prints, in processes that have maxtool.
PRINT = "maxtool.print"


def _embedding(function: FunctionLowering, node: Node) -> None:
    ids, weight = node.inputs
    result = node.outputs[0]
    storage = function.storage.get(id(weight))
    vocab, *row = weight.shape.static()
    count = function.count(ids.shape)
    flat = function.reshaped(function.get(ids), [count])
    packed = storage is not None and storage.is_packed
    plain = packed and ids.dtype is DType.int64  # the kernel clamps these itself
    rows = flat if plain else function.compute(te.row_numbers(vocab), flat, name="rows")
    if storage is None or not storage.is_packed:
        table = function.reshaped(function.get(weight), [vocab, prod(row)])
        compute = te.embedding(weight.dtype, result.dtype)
        value = function.compute(compute, rows, table, name="embedding")
    else:
        (dim,) = row
        request = _table_request(storage, vocab, dim)
        value = function.kernel(request, [rows, function.get(weight)], [count, dim])
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _table_request(storage: WeightStorage, vocab: int, dim: int) -> Request:
    """Return the request for rows of a packed table."""
    if storage.encoding is not None:
        return QuantizedEmbedding(encoding=storage.encoding.name, vocab=vocab, dim=dim)
    table = storage.dtype.value
    block = storage.block or 1
    return PackedEmbedding(
        vocab=vocab, dim=dim, weight_dtype=table, block=block, terms=storage.terms
    )


def _elementwise(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    fused = chain(function, node)
    if fused is None:
        operands = [function.get(operand) for operand in node.inputs]
        compute = te.elementwise(node.op, node.inputs[-1].dtype)
        function.set_whole(result, function.compute(compute, *operands, name=node.op))
    elif any(isinstance(operand.type, BufferType) for operand in node.inputs):
        # A chain that waits would read the buffer after a later write.
        function.set_flat(result, function.chain_result(fused, result.shape))
    else:
        function.chains[id(result)] = fused


def _cast(function: FunctionLowering, node: Node) -> None:
    fused = cast_chain(function, node)
    if fused is None:
        cast_rule(function, node)
    else:
        function.chains[id(node.outputs[0])] = fused


def _pow(function: FunctionLowering, node: Node) -> None:
    result = node.outputs[0]
    if result.dtype.is_float():
        _elementwise(function, node)
        return
    sizes = [function.count(result.shape)]
    operands = [
        function.reshaped(function.broadcast(operand, result.shape), sizes)
        for operand in node.inputs
    ]
    request = IntegerPower(dtype=result.dtype.value)
    value = function.kernel(request, operands, sizes, result.dtype)
    function.set_whole(result, function.reshaped(value, function.sizes(result.shape)))


def _transfer_to(function: FunctionLowering, node: Node) -> None:
    """A copy on another device; nothing, between devices that are the host."""
    x, result = node.inputs[0], node.outputs[0]
    placement = function.module.placement
    value = function.get(x)
    if placement.vdevice(x.device) is not placement.vdevice(result.device):
        value = function.moved(value, result.device)
    else:
        value = function.to_keep(x)
    function.set_whole(result, value)


def _collective(name: str) -> Rule:
    """Return the rule of an operation between devices: whoever runs the module registers it."""

    def rule(function: FunctionLowering, node: Node) -> None:
        (x,), (result,) = node.inputs, node.outputs
        call = relax.op.call_dps_packed(name, [function.get(x)], function.type(result.type))
        function.set_whole(result, function.emit(call))

    return rule


def _sample(function: FunctionLowering, node: Node) -> None:
    """The kernel writes what was seen in place, and the tokens to memory of their own."""
    seen, *rest = node.inputs
    after, token = node.outputs
    operands = [function.to_overwrite(seen), *map(function.get, rest)]
    sizes = function.sizes(token.shape)
    written, drawn = function.kernel_updating(Sample(), operands, 1, [sizes], token.dtype)
    function.set_whole(after, written)
    function.set_whole(token, drawn)


def _print(function: FunctionLowering, node: Node) -> None:
    x = node.inputs[0]
    said = StringImm(node.attributes["label"]), StringImm(x.dtype.value)
    call = relax.op.call_pure_packed(PRINT, function.get(x), *said, ty_args=[relax.AnyType()])
    function.emit(call)


RULES: dict[str, Rule] = {
    **dict.fromkeys((*UNARY, *BINARY, *BITWISE, *COMPARISONS, *LOGICAL, *TESTS), _elementwise),
    **dict.fromkeys(("logical_not", "where"), _elementwise),
    **ATTENTION,
    **CONVOLUTIONS,
    **IMAGES,
    **INTEGER_CONVOLUTIONS,
    **POSITIONS,
    **PERMUTING,
    **MOVING,
    **PRODUCTS,
    **FUSED_PRODUCTS,
    **RECURRENCES,
    **ROWWISE,
    "all_gather": _collective(ALL_GATHER),
    "all_reduce": _collective(ALL_REDUCE),
    "bitcast": bitcast_rule,
    "cast": _cast,
    "embedding": _embedding,
    "pow": _pow,
    "print": _print,
    "sample": _sample,
    "transfer_to": _transfer_to,
}
