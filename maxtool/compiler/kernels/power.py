"""Powers of whole numbers with whole exponents."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from maxtool.compiler.kernels import kernel_builder as b
from maxtool.compiler.kernels.backend import Backend

# Bits of an integer type by its name.
BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


def integer_power(backend: Backend, dtype: str) -> b.PrimFunc:
    """Build ``z[i] = x[i] ** y[i]``, which wraps around.

    Parameters of the kernel: x[n], y[n], z[n], all of ``dtype``.
    """
    with b.kernel(f"pow_{dtype}") as kernel:
        n = kernel.dim("n")
        x, y, z = (kernel.argument(name, (n,), dtype) for name in "xyz")

        def row() -> Callable[[b.Expr], None]:
            return lambda i: b.store(z, _power(x[i], y[i], dtype), (i,))

        backend.each_element((n,), row, work=4 * BITS[dtype])
    return kernel.function


def _power(x: b.Expr, y: b.Expr, dtype: str) -> b.Expr:
    """``x ** y``, which wraps around.

    It is a product of squares, one for each bit of y; for a negative y it is what is left of
    ``1 / x**-y`` before the point.
    """
    # Without a sign: compilers take the overflow of a signed product to be impossible.
    kind, bits = f"uint{BITS[dtype]}", BITS[dtype]
    product, left, square = (b.cell(dtype=kind) for _ in range(3))
    product.set(tirx.const(1, kind))
    left.set(T.Cast(kind, y))
    square.set(T.Cast(kind, x))
    with T.serial(b.integer(bits)):
        with b.when((left.value & tirx.const(1, kind)) == tirx.const(1, kind)):
            product.set(product.value * square.value)
        square.set(square.value * square.value)
        left.set(T.shift_right(left.value, tirx.const(1, kind)))
    return _rounded(x, y, T.Cast(dtype, product.value), dtype)


def _rounded(x: b.Expr, y: b.Expr, product: b.Expr, dtype: str) -> b.Expr:
    """The power, or for a negative exponent what one over it is without digits after the point."""
    if dtype.startswith("u"):
        return product
    zero, unit, minus_one = (tirx.const(value, dtype) for value in (0, 1, -1))
    # The power of -1 by a negative exponent, taken without its sign, is -1 or 1 as it should be.
    is_unit = tirx.any(x == unit, x == minus_one)
    return T.Select(tirx.all(y < zero, tirx.Not(is_unit)), zero, product)
