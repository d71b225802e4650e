# mypy: ignore-errors
# ruff: noqa: ANN201, F841 - the annotations are TVMScript
"""Build a small artifact to the manifest's contract: ``python build_artifact.py FOLDER``.

Its logits are a table by position (the weight ``plan``, filled by the tests), plus the token id
(``forward``), or plus the first id that the state remembers (``prefill`` and ``decode``). So a
test says what is generated, and sees whether the state was kept between calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tvm
from tvm import relax
from tvm.script import tirx as T  # noqa: N812 - its usual name

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.linking import export_library

CONTEXT, VOCAB = 48, 512


@T.prim_func(s_tir=True)
def remember(cache_p: T.handle, ids_p: T.handle, position: T.Buffer((1,), "int32")):
    T.func_attr({"tirx.noalias": True})
    batch = T.int64()
    seq = T.int64()
    cache = T.match_buffer(cache_p, (batch, CONTEXT), "float32")
    ids = T.match_buffer(ids_p, (batch, seq), "int64")
    for b, s in T.grid(batch, seq):
        with T.sblock("write"):
            vb, vs = T.axis.remap("SS", [b, s])
            cache[vb, T.Cast("int64", position[0]) + vs] = T.Cast("float32", ids[vb, vs])


@T.prim_func(s_tir=True)
def last(
    cache_p: T.handle,
    ids_p: T.handle,
    position: T.Buffer((1,), "int32"),
    plan: T.Buffer((CONTEXT, VOCAB), "float32"),
    out_p: T.handle,
):
    T.func_attr({"tirx.noalias": True})
    batch = T.int64()
    seq = T.int64()
    cache = T.match_buffer(cache_p, (batch, CONTEXT), "float32")
    ids = T.match_buffer(ids_p, (batch, seq), "int64")
    out = T.match_buffer(out_p, (batch, VOCAB), "float32")
    for b, v in T.grid(batch, VOCAB):
        with T.sblock("write"):
            vb, vv = T.axis.remap("SS", [b, v])
            out[vb, vv] = plan[T.Cast("int64", position[0]) + seq - 1, vv] + cache[vb, 0]


@T.prim_func(s_tir=True)
def every(ids_p: T.handle, plan: T.Buffer((CONTEXT, VOCAB), "float32"), out_p: T.handle):
    T.func_attr({"tirx.noalias": True})
    batch = T.int64()
    seq = T.int64()
    ids = T.match_buffer(ids_p, (batch, seq), "int64")
    out = T.match_buffer(out_p, (batch, seq, VOCAB), "float32")
    for b, s, v in T.grid(batch, seq, VOCAB):
        with T.sblock("write"):
            vb, vs, vv = T.axis.remap("SSS", [b, s, v])
            out[vb, vs, vv] = plan[vs, vv] + T.Cast("float32", ids[vb, vs])


def build() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    functions = {
        name: builder.add_func(function, name)
        for name, function in {"remember": remember, "last": last, "every": every}.items()
    }
    for name in ("forward", "prefill", "decode"):
        batch, seq = tvm.tirx.Var("batch", "int64"), tvm.tirx.Var("seq", "int64")
        ids = relax.Var("ids", relax.TensorType((batch, 1 if name == "decode" else seq), "int64"))
        position = relax.Var("position", relax.TensorType((1,), "int32"))
        cache = relax.TensorType((batch, CONTEXT), "float32")
        state = relax.Var("state", relax.TupleType([cache]))
        kinds = [((CONTEXT, VOCAB), "float32"), ((3,), "float16"), ((3,), "uint16")]
        weights = relax.Var("weights", relax.TupleType([relax.TensorType(*kind) for kind in kinds]))
        stateful = name != "forward"
        parameters = [ids, *([position, state] if stateful else []), weights]
        with builder.function(name, parameters, attrs={"relax.force_pure": True}):
            with builder.dataflow():
                plan = builder.emit(relax.TupleGetItem(weights, 0))
                if stateful:
                    old = builder.emit(relax.TupleGetItem(state, 0))
                    arguments = [old, ids, position]
                    new = builder.emit(
                        relax.op.call_tir_inplace(functions["remember"], arguments, [0], [cache])
                    )
                    shape = relax.TensorType((batch, VOCAB), "float32")
                    arguments = [new, ids, position, plan]
                    call = relax.op.call_tir(functions["last"], arguments, shape)
                else:
                    shape = relax.TensorType((batch, seq, VOCAB), "float32")
                    call = relax.op.call_tir(functions["every"], [ids, plan], shape)
                result = builder.emit_output(builder.emit(call))
            builder.emit_func_output(result)
    return builder.get()


if __name__ == "__main__":
    target = tvm.target.Target({"kind": "llvm"})
    executable = tvm.compile(build(), target=target)
    export_library(executable, Path(sys.argv[1]) / "model.so", cpu_target())
