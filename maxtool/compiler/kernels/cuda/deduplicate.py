"""Equal kernels once: PrimFuncs of which one launch differs have the others in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import StructuralKey, structural_map


def share_kernels() -> Any:  # noqa: ANN401 - tvm ships no types
    """The pass that keeps one of equal kernels; for modules whose launches are split off."""
    return tvm.transform.module_pass(lambda module, _: _shared(module), 0, "maxtool.ShareKernels")


def _shared(module: Any) -> Any:  # noqa: ANN401
    functions = dict(sorted(module.functions.items(), key=lambda item: str(item[0].name_hint)))
    instead = _equal([one for one in functions.values() if _is_kernel(one)])
    if not instead:
        return module
    kept = {
        name: function if _is_kernel(function) else _launching(function, instead)
        for name, function in functions.items()
        if not (_is_kernel(function) and _symbol(function) in instead)
    }
    return tvm.IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)


def _equal(kernels: Sequence[Any]) -> dict[str, str]:
    """The symbols of kernels, and that of one before them which is equal."""
    first: dict[Any, str] = {}
    instead: dict[str, str] = {}
    for kernel in kernels:
        key = StructuralKey(kernel.without_attr("global_symbol"))
        same = first.setdefault(key, _symbol(kernel))
        if same != _symbol(kernel):
            instead[_symbol(kernel)] = same
    return instead


def _is_kernel(function: Any) -> bool:  # noqa: ANN401
    device_launch = tvm.ir.CallingConv.DEVICE_KERNEL_LAUNCH
    return (
        isinstance(function, tirx.PrimFunc) and function.attrs.get("calling_conv") == device_launch
    )


def _symbol(function: Any) -> str:  # noqa: ANN401
    return str(function.attrs["global_symbol"])


def _launching(function: Any, instead: Mapping[str, str]) -> Any:  # noqa: ANN401
    """A function of the host that launches other kernels in the place of some."""
    if not isinstance(function, tirx.PrimFunc):
        return function

    def renamed(text: Any) -> Any:  # noqa: ANN401
        name = instead.get(str(text.value))
        return text if name is None else tvm.ir.StringImm(name)

    return function.with_body(structural_map(function.body, (tvm.ir.StringImm, renamed)))
