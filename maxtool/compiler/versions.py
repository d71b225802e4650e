"""Versions of what generates code."""

from __future__ import annotations

from importlib.metadata import version

from tvm.target import codegen


def compiler_versions() -> dict[str, str]:
    """The releases of TVM and its FFI, and the major version of LLVM, which is all that TVM tells.

    LLVM is linked into TVM's wheel: one release of TVM has one LLVM.
    """
    return {
        "tvm": version("apache-tvm"),
        "tvm_ffi": version("apache-tvm-ffi"),
        "llvm": str(codegen.llvm_version_major()),
    }
