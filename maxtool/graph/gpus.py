"""The GPUs of this machine, as CUDA's driver describes them."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from maxtool.errors import MissingDevice

DRIVER = "libcuda.so.1"
PATIENCE_S = 30

# What asks the driver, in a process of its own: a broken driver may crash the process that loads
# it, and one that has initialised CUDA must not fork. 75 and 76 are
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_ASK = f"""
import ctypes
cuda, count, value = ctypes.CDLL({DRIVER!r}), ctypes.c_int(0), ctypes.c_int(0)

def ask(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        raise SystemExit(f"{{name}} gives error {{status}}")

ask("cuInit", 0)
ask("cuDeviceGetCount", ctypes.byref(count))
for device in range(count.value):
    for attribute in (75, 76):
        ask("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        print(value.value)
"""


def has_driver() -> bool:
    """Return whether CUDA's driver library can be loaded."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def compute_capabilities() -> list[tuple[int, int]]:
    """The compute capability, such as (9, 0), of each GPU of this machine, in CUDA's order.

    Raises:
        MissingDevice: If there is no driver, it does not work, or it finds no GPU.
    """
    if not has_driver():
        raise MissingDevice(f"CUDA's driver, {DRIVER}, cannot be loaded")
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and code of our own
            [sys.executable, "-I", "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingDevice(f"CUDA's driver does not answer: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise MissingDevice(f"CUDA's driver does not work: {said[0]}")
    try:
        numbers = [int(line) for line in done.stdout.split()]
        capabilities = list(zip(numbers[::2], numbers[1::2], strict=True))
    except ValueError:  # it has printed something itself
        raise MissingDevice("CUDA's driver does not answer with numbers") from None
    if not capabilities:
        raise MissingDevice("CUDA's driver finds no GPU")
    return capabilities
