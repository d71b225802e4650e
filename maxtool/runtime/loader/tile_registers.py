"""Leave to use AMX's tile registers, which Linux gives to a process that asks for it.

See "Using XSTATE features in user space applications" of the kernel's documentation.
"""

from __future__ import annotations

import ctypes
import os

from .errors import MachineLacks

ARCH_PRCTL = 158  # the number of the system call on x86-64
REQUEST_PERMISSION, TILE_DATA = 0x1023, 18


def ask_for_tiles(kind: str) -> None:
    """Ask for all threads of this process; asking again changes nothing.

    Args:
        kind: The instruction set that uses them, as LLVM calls it.

    Raises:
        MachineLacks: If there are no tiles, or none for this process.
    """
    system = ctypes.CDLL(None, use_errno=True)
    if system.syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise MachineLacks(
            f"the model was compiled for {kind}, which Linux does not let it use: {reason}",
            hint="compile it for a CPU by its name, which does without: --target cpu:x86-64-v4",
        )
