"""Entries with code of their own for the sizes that most calls have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tvm import relax, tirx

from maxtool.compiler.lowering.function_form import FunctionForm
from maxtool.compiler.lowering.function_lowering import FunctionLowering
from maxtool.compiler.lowering.relax_module import RelaxModule
from maxtool.graph import BufferType, Graph, Tensor

Expr: TypeAlias = Any  # tvm ships no types


def split_inputs(graph: Graph) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs of a graph that are only read, and the buffers."""
    plain = [value for value in graph.inputs if not isinstance(value.type, BufferType)]
    return plain, [value for value in graph.inputs if isinstance(value.type, BufferType)]


def entry_parameters(function: FunctionLowering, graph: Graph) -> list[Expr]:
    """The parameters of an entry: its inputs, its state if it has any, all weights."""
    plain, state = split_inputs(graph)
    arrays = (["state"] if state else []) + ["weights"]
    return [
        *(relax.Var(f"input_{i}", function.type(value.type)) for i, value in enumerate(plain)),
        *(relax.Var(name, relax.AnyType()) for name in arrays),
    ]


def add_choice(
    module: RelaxModule,
    graph: Graph,
    symbol: str,
    usual: Mapping[str, int],
    choices: Sequence[Expr],
) -> None:
    """Add the public function of an entry, which calls one function for the usual sizes.

    Other sizes are for the second of the ``choices``.
    """
    function, builder = FunctionLowering(module), module.builder
    parameters = entry_parameters(function, graph)
    fixed = FunctionLowering(module, FunctionForm.for_sizes(usual))
    types = [fixed.type(value.type) for value in split_inputs(graph)[0]]
    conditions = [function.dim(name) == tirx.IntImm("int64", size) for name, size in usual.items()]

    def narrowed() -> Expr:
        known = [builder.match_cast(*pair) for pair in zip(parameters, types, strict=False)]
        return relax.Call(choices[0], [*known, *parameters[len(known) :]])

    with builder.function(symbol, parameters, attrs={"relax.force_pure": True}):
        branches = []
        for make in (narrowed, lambda: relax.Call(choices[1], parameters)):
            builder._begin_binding_block()
            result = builder.emit(make())
            branches.append(relax.SeqExpr([builder._end_block()], result))
        condition = builder.emit(relax.prim_value(tirx.all(*conditions)))
        builder.emit_func_output(builder.emit(relax.If(condition, *branches)))
