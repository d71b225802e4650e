# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, F841 - the annotations are TVMScript
"""Build the small artifact of ``../build_artifact.py`` for GPUs: ``python ... FOLDER``.

Beside ``model.so`` goes ``kernels.cu``: the CUDA source that TVM made, for the stub of a GPU. The
bodies are those of the CPU artifact; that of ``choose`` says only what it reads and writes, as its
kernel is written by hand in ``choose.h``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tvm
from tvm import relax
from tvm.script import tirx as T  # noqa: N812 - its usual name

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from build_artifact import CONTEXT, VOCAB, every, last, remember

from maxtool.compiler.cpu_target import cpu_target
from maxtool.compiler.cuda.binaries import compile_apart, device_source
from maxtool.compiler.linking import export_library


@T.prim_func(s_tir=True)
def mark(seen_p: T.handle, ids_p: T.handle):
    T.func_attr({"tirx.noalias": True})
    batch = T.int64()
    seq = T.int64()
    seen = T.match_buffer(seen_p, (batch, VOCAB), "int8")
    ids = T.match_buffer(ids_p, (batch, seq), "int64")
    for b, s in T.grid(batch, seq):
        with T.sblock("write"):
            vb, vs = T.axis.remap("SS", [b, s])
            seen[vb, T.max(ids[vb, vs], T.int64(0))] = T.int8(1)


@T.prim_func(s_tir=True)
def choose(
    logits_p: T.handle,
    position: T.Buffer((1,), "int32"),
    draws: T.Buffer((CONTEXT,), "float32"),
    settings: T.Buffer((5,), "float32"),
    seen_p: T.handle,
    token_p: T.handle,
):
    T.func_attr({"tirx.noalias": True})
    batch = T.int64()
    logits = T.match_buffer(logits_p, (batch, VOCAB), "float32")
    seen = T.match_buffer(seen_p, (batch, VOCAB), "int8")
    token = T.match_buffer(token_p, (batch, 1), "int64")
    for b in T.serial(batch):
        with T.sblock("write"):
            vb = T.axis.remap("S", [b])
            token[vb, 0] = T.Cast(
                "int64",
                logits[vb, 0] + draws[position[0]] + settings[0] + T.Cast("float32", seen[vb, 0]),
            )


@T.prim_func(s_tir=True)
def advance(position: T.Buffer((1,), "int32"), ids_p: T.handle, after: T.Buffer((1,), "int32")):
    T.func_attr({"tirx.noalias": True})
    batch = T.int64()
    seq = T.int64()
    ids = T.match_buffer(ids_p, (batch, seq), "int64")
    for i in T.serial(1):
        with T.sblock("write"):
            vi = T.axis.remap("S", [i])
            after[vi] = position[vi] + T.Cast("int32", seq)


def build() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    kernels = (remember, last, every, mark, choose, advance)
    functions = {f.__name__: builder.add_func(f, f.__name__) for f in kernels}
    for name in ("forward", "prefill", "decode", "sample_prefill", "sample_decode"):
        add_entry(builder, functions, name)
    return builder.get()


def add_entry(builder, functions, name):
    batch, seq = tvm.tirx.Var("batch", "int64"), tvm.tirx.Var("seq", "int64")
    length = 1 if name.endswith("decode") else seq
    ids = relax.Var("ids", relax.TensorType((batch, length), "int64"))
    position = relax.Var("position", relax.TensorType((1,), "int32"))
    draws = relax.Var("draws", relax.TensorType((CONTEXT,), "float32"))
    settings = relax.Var("settings", relax.TensorType((5,), "float32"))
    types = [
        relax.TensorType((batch, CONTEXT), "float32"),
        relax.TensorType((batch, VOCAB), "int8"),
    ]
    state = relax.Var("state", relax.TupleType(types))
    kinds = [((CONTEXT, VOCAB), "float32"), ((3,), "float16"), ((3,), "uint16")]
    weights = relax.Var("weights", relax.TupleType([relax.TensorType(*kind) for kind in kinds]))
    sampled = name.startswith("sample")
    extra = {True: [position, draws, settings, state], False: [position, state]}[sampled]
    parameters = [ids, *(extra if name != "forward" else []), weights]

    def call(function, arguments, shape, dtype):
        kind = relax.TensorType(shape, dtype)
        return builder.emit(relax.op.call_tir(functions[function], arguments, kind))

    def write(function, arguments, kind):
        return builder.emit(relax.op.call_tir_inplace(functions[function], arguments, [0], [kind]))

    with builder.function(name, parameters, attrs={"relax.force_pure": True}):
        with builder.dataflow():
            plan = builder.emit(relax.TupleGetItem(weights, 0))
            if name == "forward":
                results = call("every", [ids, plan], (batch, seq, VOCAB), "float32")
            else:
                cache = builder.emit(relax.TupleGetItem(state, 0))
                cache = write("remember", [cache, ids, position], types[0])
                results = call("last", [cache, ids, position, plan], (batch, VOCAB), "float32")
            if sampled:
                seen = builder.emit(relax.TupleGetItem(state, 1))
                seen = write("mark", [seen, ids], types[1])
                arguments = [results, position, draws, settings, seen]
                token = call("choose", arguments, (batch, 1), "int64")
                after = call("advance", [position, ids], (1,), "int32")
                results = builder.emit(relax.Tuple([token, after]))
            result = builder.emit_output(results)
        builder.emit_func_output(result)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shared = {"max_shared_memory_per_block": 49152, "thread_warp_size": 32}
    host = {"host": {"kind": "llvm"}, "max_threads_per_block": 1024}
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80", **shared, **host})
    compiled = compile_apart(build(), target)
    export_library(compiled.executable, folder / "model.so", cpu_target())
    (folder / "kernels.cu").write_text(device_source(compiled))
