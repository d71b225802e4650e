"""A Relax module for GPUs: values on the device, sizes on the host, machine code in cubins."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax, te, tirx

from maxtool.compiler.cuda import binaries
from maxtool.compiler.cuda.binaries import device_code, device_source
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
            made = builder.emit_te(compute, x, primfunc_name_hint="computed")
            constant = builder.emit(relax.const(np.ones(64, "float32")))
            added = builder.emit_te(
                lambda a, b: te.compute(a.shape, lambda i, j: a[i, j] + b[j]),
                *(made, constant),
                primfunc_name_hint="added",
            )
            flat = builder.emit(relax.op.reshape(added, [rows * 64]))
            output = builder.emit_output(flat)
        builder.emit_func_output(output)
    return builder.get()


@pytest.fixture(scope="module")
def executable() -> Any:
    return compile_module(relax_module(), TARGET, asserts=False)


def test_machine_code_and_ptx(executable: Any) -> None:
    codes = device_code(executable, TARGET)
    assert [code.file for code in codes] == ["sm_80.cubin", "sm_90.cubin", "compute_90.ptx"]
    for kernel in (b"computed_kernel", b"added_kernel"):
        assert all(kernel in code.data for code in codes)


def test_storage_is_the_devices_and_sizes_are_the_hosts(executable: Any) -> None:
    text = executable.as_text()
    # The second argument after the size is the device that the machine was given first.
    assert "vm.builtin.alloc_storage in: %vm, %" in text
    assert all(
        ", i0, c[" in line for line in text.splitlines() if "call  vm.builtin.alloc_storage" in line
    )
    assert "shape_func" in text and "shape_func" not in device_source(executable)


def test_the_host_part_links(executable: Any, tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    export_library(executable, library, TARGET.processor)
    assert library.read_bytes()[:4] == b"\x7fELF"


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    name = binaries._KEEP_SOURCE
    monkeypatch.delenv(name, raising=False)
    with binaries.source_kept():
        assert os.environ[name] == "1"
    assert name not in os.environ
    monkeypatch.setenv(name, "0")
    with binaries.source_kept():
        assert os.environ[name] == "1"
    assert os.environ[name] == "0"


def test_a_module_for_a_cpu_has_no_device_code() -> None:
    executable = compile_module(relax_module(), parse_target("cpu"), asserts=False)
    with pytest.raises(CompilationFailed, match="0 pieces"):
        device_source(executable)


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
