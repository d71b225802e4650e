"""The two headers of libcu++ that TVM's CUDA C++ includes, in the few lines of them that it needs.

The originals take nvrtc more than a second, ten times what a small model's kernels do.
"""

from __future__ import annotations

_CSTDINT = """
namespace cuda { namespace std {
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
} }
"""

# TVM names all of these in one place and uses none in the code of a kernel: what is only declared
# here cannot be used by mistake.
_TYPE_TRAITS = """
namespace cuda { namespace std {
template <class A, class B> struct is_same;
template <class A, class B> constexpr bool is_same_v = false;
template <class A> constexpr bool is_same_v<A, A> = true;
template <class A> struct is_integral;
template <class A> struct is_signed;
template <class A> struct is_unsigned;
template <class A> struct is_floating_point;
template <bool condition, class A> struct enable_if;
template <bool condition, class A, class B> struct conditional;
} }
"""

# What nvrtc is given beside the source: texts by the names they are included by.
HEADERS = {
    b"cuda/std/cstdint": _CSTDINT.encode(),
    b"cuda/std/type_traits": _TYPE_TRAITS.encode(),
}
