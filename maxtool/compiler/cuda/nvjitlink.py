"""PTX to machine code, by NVIDIA's nvJitLink, which has ptxas in it."""

from __future__ import annotations

from typing import Any, NamedTuple

from maxtool.compiler.cuda.wheels import compilers
from maxtool.errors import CompilationFailed

# What each kernel takes of a GPU is in the log.
REPORT = "-Xptxas=-v"
SHOWN = 5


class Assembled(NamedTuple):
    """Machine code for one architecture.

    Attributes:
        cubin: An ELF file.
        log: What ptxas reports of the kernels.
    """

    cubin: bytes
    log: str


def assemble(ptx: bytes, arch: str) -> Assembled:
    """Compile PTX to machine code.

    Args:
        ptx: The text.
        arch: ``sm_XX``.

    Raises:
        MachineLacks: If the packages of the extra ``cuda`` are not installed.
        CompilationFailed: If it does not compile; ptxas' messages are in ``problems``.
    """
    library = compilers().nvjitlink
    options = [f"-arch={arch}", REPORT]
    handle = library.create(len(options), options)
    try:
        library.add_data(handle, library.InputType.PTX, ptx, len(ptx), "model.ptx")
        library.complete(handle)
        cubin = bytearray(library.get_linked_cubin_size(handle))
        library.get_linked_cubin(handle, cubin)
        return Assembled(bytes(cubin), _log(library, handle, "info"))
    except library.nvJitLinkError as error:
        said = [line.strip() for line in _log(library, handle, "error").splitlines()]
        what = f"nvJitLink could not make machine code for {arch} ({error})"
        raise CompilationFailed(what, problems=[line for line in said if line][:SHOWN]) from None
    finally:
        library.destroy(handle)


def _log(library: Any, handle: Any, which: str) -> str:  # noqa: ANN401
    """What was said of the work, or of what was wrong."""
    text = bytearray(getattr(library, f"get_{which}_log_size")(handle))
    getattr(library, f"get_{which}_log")(handle, text)
    return text.rstrip(b"\0").decode(errors="replace")
