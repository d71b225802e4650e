"""Equal kernels of several functions are compiled once."""

from __future__ import annotations

import re
from typing import Any

import tvm
from tvm import tirx

from maxtool.compiler.cuda.binaries import compile_apart
from maxtool.compiler.kernels.cuda.cuda_passes import lowering_passes, register
from maxtool.compiler.kernels.cuda.deduplicate import share_kernels
from maxtool.compiler.kernels.kernel_options import ChainEpilogue, adding
from tests.compiler.cuda.harness import TARGET, build

SIZES = {"weight_dtype": "float16", "aligned": True, "fours": True}


def products() -> Any:
    """A product, one with large tiles beside its others, and one that adds a residual."""
    options: dict[str, dict[str, Any]] = {"small": {"wide": False}, "wide": {"wide": True}}
    options["more"] = {"wide": False, "after": ChainEpilogue((False,), adding(1))}
    result = {name: build("linear", **SIZES, **one) for name, one in options.items()}
    return tvm.IRModule(
        {name: one.with_attr("global_symbol", name) for name, one in result.items()}
    )


def kernels(source: str) -> list[str]:
    return re.findall(r"__launch_bounds__\([\d, ]*\) (\w+)\([^;{]*\) {", source)


def test_equal_kernels_are_compiled_once() -> None:
    compiled = compile_apart(products(), TARGET.tvm, tir_pipeline=register())
    result = sorted(kernels(compiled.sources[0]))
    # Few rows and small tiles of the first are the second's, too.
    assert result == [
        "more_kernel",
        "more_kernel_1",
        "small_kernel",
        "small_kernel_1",
        "wide_kernel_1",
    ]


def test_what_is_launched_is_there() -> None:
    passes = [tirx.transform.BindTarget(TARGET.tvm), *lowering_passes()]
    split = tvm.ir.transform.Sequential([*passes, tirx.transform.SplitHostDevice()])(products())
    shared = share_kernels()(split)
    symbols = {str(one.attrs["global_symbol"]) for one in shared.functions.values()}
    for name in ("small", "wide", "more"):
        before, after = (
            re.findall(r"\w+_kernel\w*(?=\")", str(one[name])) for one in (split, shared)
        )
        assert len(before) == len(after) and set(after) <= symbols
    assert share_kernels()(shared).same_as(shared)
