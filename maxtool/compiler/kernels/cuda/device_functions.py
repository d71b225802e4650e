"""Device functions that TensorIR has no word for: tensor cores, asynchronous copies, packed halves.

Each is a line of PTX or CUDA C++ that the kernels call by name. Fragments are those of the PTX ISA
(section "Matrix multiply-accumulate operation using mma instruction"). Pointers are
``T.address_of(buffer[index])``; fragments are arrays in registers.
"""

from __future__ import annotations

from typing import Any

from tvm.backend.cuda.op import cuda_func_call

Expr = Any  # tvm ships no types

_MMA = """
__device__ __forceinline__ void mt_mma_{name}(float* d, const unsigned* a, const unsigned* b) {{
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.{type}.{type}.f32 "
      "{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""

_LDMATRIX = """
__device__ __forceinline__ void mt_ldmatrix_x4{name}(unsigned* r, const void* row) {{
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{type}.shared.b16 {{%0,%1,%2,%3}}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}}
"""

_CP_ASYNC = """
__device__ __forceinline__ void mt_cp_async_16(void* to, const void* from, int bytes) {
  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"(at), "l"(from), "r"(bytes) : "memory");
}
"""

_UNPACK = """
__device__ __forceinline__ void mt_unpack_{name}(float* f, unsigned bits) {{
{body}
}}
"""

_PACK = """
__device__ __forceinline__ unsigned mt_pack_{name}(float low, float high) {{
  unsigned bits;
  asm("cvt.rn.{type}.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}}
"""

_MOVE = """
__device__ __forceinline__ void mt_{name}({parameters}) {{
  *reinterpret_cast<{kind}*>({to}) = *reinterpret_cast<const {kind}*>({source});
}}
"""

_HALF2 = """  asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2;"
      " cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
      : "=f"(f[0]), "=f"(f[1]) : "r"(bits));"""
_BFLOAT2 = """  f[0] = __uint_as_float(bits << 16);
  f[1] = __uint_as_float(bits & 0xffff0000u);"""

_LOAD = {"parameters": "void* r, const void* p", "to": "r", "source": "p"}
_STORE = {"parameters": "void* p, const void* r", "to": "p", "source": "r"}

# Its CUDA C++ by the name of each function.
SOURCES: dict[str, str] = {
    "mt_mma_f16": _MMA.format(name="f16", type="f16"),
    "mt_mma_bf16": _MMA.format(name="bf16", type="bf16"),
    "mt_ldmatrix_x4": _LDMATRIX.format(name="", type=""),
    "mt_ldmatrix_x4_trans": _LDMATRIX.format(name="_trans", type=".trans"),
    "mt_cp_async_16": _CP_ASYNC,
    "mt_cp_async_commit": """
__device__ __forceinline__ void mt_cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
""",
    "mt_cp_async_wait": """
#define mt_cp_async_wait(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
""",
    "mt_either": """
__device__ __forceinline__ const void* mt_either(bool one, const void* p, const void* q) {
  return one ? p : q;
}
""",
    "mt_load_16": _MOVE.format(name="load_16", kind="uint4", **_LOAD),
    "mt_load_8": _MOVE.format(name="load_8", kind="uint2", **_LOAD),
    "mt_store_16": _MOVE.format(name="store_16", kind="uint4", **_STORE),
    "mt_store_8": _MOVE.format(name="store_8", kind="uint2", **_STORE),
    "mt_unpack_f16": _UNPACK.format(name="f16", body=_HALF2),
    "mt_unpack_bf16": _UNPACK.format(name="bf16", body=_BFLOAT2),
    "mt_pack_f16": _PACK.format(name="f16", type="f16x2"),
    "mt_pack_bf16": _PACK.format(name="bf16", type="bf16x2"),
    "mt_bf16": """
__device__ __forceinline__ unsigned short mt_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
""",
}


def call(name: str, *arguments: Expr, returns: str = "void") -> Expr:
    """A call of a function in ``SOURCES`` as an expression of the type ``returns``."""
    return cuda_func_call(name, *arguments, source_code=SOURCES[name], return_type=returns)
