"""What this machine has: threads, instructions, TVM's runtime."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .errors import MachineLacks, NotVerified
from .manifest import Manifest

BYTES_PER_THREAD = 4 << 20
RUNTIME = {"darwin": "libtvm_runtime.dylib"}.get(sys.platform, "libtvm_runtime.so")
THREADS = "runtime.config_threadpool"  # a function of that library


def set_threads(weight_bytes: int) -> int:
    """Choose the size of TVM's thread pool, unless the environment already does.

    One thread per physical core that this process may use, at most its share of CPU time: worker
    threads spin while they wait, so more of them than cores ruins every call. Threads are not
    pinned: TVM would pin them to the first cores, whoever else is busy there, and whether or not
    they may be used.

    Args:
        weight_bytes: Size of the weights, about what a generated token reads.

    Returns:
        How many of the threads a model of that size uses: one that has few weights to read costs
        more to wake than it saves.
    """
    allowed = getattr(os, "sched_getaffinity", lambda _: set(range(os.cpu_count() or 1)))(0)
    most = str(max(1, min(_cores(allowed), _quota())))
    pool = os.environ.setdefault("TVM_NUM_THREADS", most)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    return max(1, min(int(pool if pool.isdigit() else most), weight_bytes // BYTES_PER_THREAD))


def _cores(allowed: set[int]) -> int:
    """Physical cores among the CPUs: those that share a core count once."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_contents(siblings.format(cpu)) or str(cpu) for cpu in allowed})


def _quota() -> int:
    """CPUs' worth of time that the control group grants; very many where it does not say."""
    quota, _, period = _contents("/sys/fs/cgroup/cpu.max").partition(" ")
    return int(quota) // int(period) if quota.isdigit() and period.isdigit() else 1 << 16


def _contents(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def check_machine(target: Mapping[str, Any]) -> None:
    """Refuse a model for another processor, which would end in an illegal instruction."""
    if target.get("kind") != "cpu":
        raise MachineLacks(f"this loader runs models for a CPU, not for {target.get('kind')!r:.40}")
    arch = str(target.get("triple", "")).partition("-")[0].replace("arm64", "aarch64")
    machine = platform.machine().lower().replace("arm64", "aarch64").replace("amd64", "x86_64")
    if arch and arch != machine:
        raise MachineLacks(f"the model was compiled for {arch}; this machine is {machine}")
    flags = _contents("/proc/cpuinfo").partition("flags")[2].partition("\n")[0].replace("_", "")
    missing = [
        f for f in target.get("features") or [] if arch == "x86_64" and f not in flags.split()
    ]
    if missing and flags:
        raise MachineLacks(
            f"the model was compiled for a CPU with {', '.join(missing)}, which this "
            "machine has not; compile it here, or with --target cpu:x86-64-v3"
        )


def open_module(manifest: Manifest, *, verified: bool) -> Any:  # noqa: ANN401 - tvm_ffi has no types
    """Load TVM's runtime and the compiled code; the virtual machine, ready for calls."""
    try:
        import tvm_ffi
    except ImportError:
        wanted = f"apache-tvm-ffi=={manifest.root.get('tvm_ffi', '')}".removesuffix("==")
        raise MachineLacks(f"tvm_ffi is not installed: pip install {wanted}") from None
    check_release("apache-tvm-ffi", manifest.root.get("tvm_ffi"))
    # The runtime registers types that only the compiler package describes.
    tvm_ffi.registry._SKIP_UNKNOWN_OBJECTS = True
    library = find_runtime(manifest, verified=verified)
    try:
        if tvm_ffi.get_global_func(THREADS, allow_missing=True) is None:  # a second one would abort
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
        module = load_library(manifest.module)
        machine = module.get_function("vm_load_executable", query_imports=True)()
        cpu, device, pooled = 1, 0, 2
        machine.get_function("vm_initialization")(cpu, device, pooled)
    except (OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
        raise MachineLacks(
            f"cannot load {manifest.module} with {library}: {last_line(error)}"
        ) from None
    return machine


def load_library(path: Path) -> Any:  # noqa: ANN401
    """Load compiled code, through a link of a name that no other library had.

    The system takes a library it has loaded from the same path for the same one, whatever the
    file holds by now: code of a model that was replaced would run with the new weights.
    """
    import tvm_ffi

    with suppress(OSError), tempfile.TemporaryDirectory(prefix="maxtool-") as folder:
        link = Path(folder, path.name)
        link.symlink_to(path)
        return tvm_ffi.load_module(str(link))
    return tvm_ffi.load_module(str(path))  # there is nowhere to put a link


def find_runtime(manifest: Manifest, *, verified: bool) -> Path:
    """TVM's runtime library: the artifact's own, else that of an installed ``tvm`` package."""
    own = manifest.folder / "lib" / RUNTIME
    if own.is_file():
        if verified and own not in manifest.files:
            raise NotVerified(f"{own} is not listed in the manifest (--no-verify loads it anyway)")
        return own
    for folder in sys.path:
        library = Path(folder or ".") / "tvm" / "lib" / RUNTIME
        if library.is_file():
            check_release("apache-tvm", manifest.root.get("tvm"))
            return library.resolve()
    wanted = manifest.root.get("tvm")
    raise MachineLacks(
        f"no {RUNTIME}: pip install apache-tvm=={wanted}, or compile the model with "
        "--standalone, which puts the library into its folder"
    )


def check_release(package: str, compiled_with: object) -> None:
    """Refuse a runtime of another release: neither calls nor files are the same between them."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        return
    if str(compiled_with).split(".")[:2] != installed.split(".")[:2]:
        what = f"the model was compiled with {package} {compiled_with!s:.40}"
        raise MachineLacks(f"{what}; {installed} is installed")


def last_line(error: BaseException) -> str:
    """What an error says in its last line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
