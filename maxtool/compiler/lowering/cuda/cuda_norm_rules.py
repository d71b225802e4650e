"""A norm on GPUs takes in the chain of elementwise operations that it reads."""

from __future__ import annotations

from tvm import relax

from maxtool.compiler.kernels.cuda.gpu_requests import ChainRmsNorm
from maxtool.compiler.kernels.cuda.norm import layout
from maxtool.compiler.lowering.chain import Chain
from maxtool.compiler.lowering.function_lowering import FunctionLowering, Rule
from maxtool.compiler.lowering.rules import RULES
from maxtool.compiler.storage_types import stored
from maxtool.dtype import DType
from maxtool.graph import Node

# What a chain may have so that the registers of a thread hold its part of the row, too.
MAX_INPUTS = 3
MAX_STEPS = 6


def _rms_norm(function: FunctionLowering, node: Node) -> None:
    x, weight = node.inputs
    chain = None if id(x) in function.flat else function.chains.get(id(x))
    plain = weight.dtype is DType.float32 and not node.attributes["weight_offset"]
    if plain and chain is not None and _fits(chain):
        _normalised(function, node, chain)
    else:
        RULES["rms_norm"](function, node)


def _fits(chain: Chain) -> bool:
    small = len(chain.inputs) <= MAX_INPUTS and len(chain.steps) <= MAX_STEPS
    return small and chain.is_of_rows and layout(chain.width).fits


def _normalised(function: FunctionLowering, node: Node, chain: Chain) -> None:
    """One kernel writes the norm, and what the chain gives if anything else reads that."""
    (x, weight), (result,) = node.inputs, node.outputs
    kept, dtype = function.index.uses(x) > 1, function.result_type(result)
    request = ChainRmsNorm(
        dim=chain.width,
        eps=node.attributes["eps"],
        inputs=len(chain.inputs),
        steps=chain.steps,
        kept=kept,
        out=dtype.value,
    )
    sizes, vdevice = function.flat_sizes(x.shape), function.vdevice
    written = [DType.float32, dtype] if kept else [dtype]
    types = [relax.TensorType(sizes, stored(each), vdevice=vdevice) for each in written]
    operands = [*chain.inputs, function.get(weight)]
    *results, normal = function.kernel_of_types(request, operands, types)
    if kept:
        function.set_flat(x, results[0])
    function.set_result(result, normal)


NORMS: dict[str, Rule] = {"rms_norm": _rms_norm}
