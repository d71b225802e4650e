"""A Relax module for GPUs: values on the device, sizes on the host, machine code in cubins."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx

from maxtool.compiler.cuda import binaries
from maxtool.compiler.cuda.binaries import (
    GeneratedModule,
    compile_apart,
    device_code,
    device_source,
)
from maxtool.compiler.cuda.schedule import schedule_all
from maxtool.compiler.kernels.cuda.cuda_passes import register
from maxtool.compiler.linking import export_library
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.targets import parse_target
from maxtool.errors import CompilationFailed, UsageError

TARGET = parse_target("cuda:sm_80,sm_90", ptx=True)


def doubled(x: Any) -> Any:
    return te.compute(x.shape, lambda *i: x(*i) * 2.0, name="doubled")


def relax_module(compute: Callable[[Any], Any] = doubled) -> Any:
    builder, rows = relax.BlockBuilder(), tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType([rows, 64], "float32"))
    with builder.function("main", [x], attrs={"relax.force_pure": True}):
        with builder.dataflow():
            result = builder.emit_te(compute, x, primfunc_name_hint="computed")
            constant = builder.emit(relax.const(np.ones(64, "float32")))
            added = builder.emit_te(
                lambda a, b: te.compute(a.shape, lambda i, j: a[i, j] + b[j]),
                *(result, constant),
                primfunc_name_hint="added",
            )
            flat = builder.emit(relax.op.reshape(added, [rows * 64]))
            output = builder.emit_output(flat)
        builder.emit_func_output(output)
    return builder.get()


@pytest.fixture(scope="module")
def compiled() -> GeneratedModule:
    return compile_module(relax_module(), TARGET, asserts=False)


def test_machine_code_and_ptx(compiled: GeneratedModule) -> None:
    codes = device_code(compiled, TARGET)
    assert [code.file for code in codes] == ["sm_80.cubin", "sm_90.cubin", "compute_80.ptx"]
    for kernel in (b"computed_kernel", b"added_kernel"):
        assert all(kernel in code.data for code in codes)


def test_storage_is_the_devices_and_sizes_are_the_hosts(compiled: GeneratedModule) -> None:
    text = compiled.executable.as_text()
    # The second argument after the size is the device that the machine was given first.
    assert "vm.builtin.alloc_storage in: %vm, %" in text
    assert all(
        ", i0, c[" in line for line in text.splitlines() if "call  vm.builtin.alloc_storage" in line
    )
    assert "shape_func" in text and "shape_func" not in device_source(compiled)


def test_the_host_part_names_kernels_and_does_not_have_them(
    compiled: GeneratedModule, tmp_path: Path
) -> None:
    library = tmp_path / "model.so"
    export_library(compiled.executable, library, TARGET.processor)
    data = library.read_bytes()
    assert data[:4] == b"\x7fELF"
    assert b"computed_kernel" in data
    assert b"__global__" in device_source(compiled).encode() and b"__global__" not in data


@pytest.mark.parametrize("before", [None, "0"])
def test_a_compilation_leaves_the_process_as_it_was(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = binaries._KEEP_SOURCE
    if before is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, before)
    compiled = compile_apart(scheduled(), TARGET.tvm, tir_pipeline=register())
    assert os.environ.get(name) == before
    assert source_in(compiled.executable) != device_source(compiled)
    monkeypatch.setenv(name, "1")
    plain = tvm.compile(scheduled(), target=TARGET.tvm, tir_pipeline=register())
    assert source_in(plain) == device_source(compiled)


def test_threads_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a process-wide setting until the last thread that needs it is done."""
    name, compile_with_tvm = binaries._KEEP_SOURCE, tvm.compile
    monkeypatch.delenv(name, raising=False)
    meet, first_is_done, seen = Barrier(2, timeout=60), Event(), []

    def slowly(module: Any, **options: Any) -> Any:
        if meet.wait():
            assert first_is_done.wait(60)
            seen.append(os.environ.get(name))
        return compile_with_tvm(module, **options)

    def compiled(_: int) -> str:
        result = compile_apart(scheduled(), TARGET.tvm, tir_pipeline=register())
        first_is_done.set()
        return device_source(result)

    monkeypatch.setattr(tvm, "compile", slowly)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(compiled, range(2))
    assert one == other and seen == ["1"]
    assert name not in os.environ


def test_another_user_of_tvm_is_still_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_others", lambda source, _target: source + "// theirs")
    monkeypatch.setenv(binaries._KEEP_SOURCE, "1")
    plain = tvm.compile(scheduled(), target=TARGET.tvm, tir_pipeline=register())
    assert source_in(plain).endswith("// theirs")
    compiled = compile_apart(scheduled(), TARGET.tvm, tir_pipeline=register())
    assert "theirs" not in device_source(compiled)


def scheduled() -> Any:
    x = te.placeholder((64,), name="x")
    function = te.create_prim_func([x, doubled(x)]).with_attr("global_symbol", "doubled")
    return schedule_all(tvm.IRModule({"doubled": function}))


def source_in(executable: Any) -> str:
    (device,) = executable.mod.imports
    return str(device.inspect_source())


def test_a_module_for_a_cpu_has_no_device_code() -> None:
    compiled = compile_module(relax_module(), parse_target("cpu"), asserts=False)
    with pytest.raises(CompilationFailed, match="0 pieces"):
        device_source(compiled)


def test_names_of_every_kind() -> None:
    assert (parse_target("cpu").kind, parse_target("cuda:sm_90").kind) == ("cpu", "cuda")
    assert parse_target("cpu:x86-64-v3").label == "x86-64-v3"
    assert parse_target("cuda:sm_90,sm_80").label == "sm_80, sm_90"
    assert parse_target("cpu:znver5").processor.cpu == "znver5"
    with pytest.raises(UsageError, match="--ptx is for GPUs"):
        parse_target("cpu", ptx=True)
    for name in ("gpu", "", "metal:m1", "cud:sm_90"):
        with pytest.raises(UsageError, match="no target") as raised:
            parse_target(name)
        assert "cuda:sm_XX" in (raised.value.hint or "")
