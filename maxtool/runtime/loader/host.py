"""The processor of this machine: its threads, its instructions, arrays in its memory."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DoesNotFit, MachineLacks, RunError, last_line
from .manifest import Manifest
from .memory import Array, aligned
from .specs import DTYPES
from .watched_files import WatchedFile

# Bytes of weights, and operations of convolutions, that are worth a thread: some tenth of a
# millisecond.
BYTES_PER_THREAD = 4 << 20
OPERATIONS_PER_THREAD = 8 << 20
# How often a thread that waits for work yields before it sleeps: a millisecond or two, longer than
# what happens between two tokens. TVM's own number keeps cores busy for a tenth of a second.
SPINS = "5000"
THREADS = "runtime.config_threadpool"  # a function of TVM's runtime
# By a word of LLVM's triples: the system as ``platform`` calls it.
SYSTEMS = {"linux": "Linux", "darwin": "Darwin", "macos": "Darwin", "windows": "Windows"}
USUAL_NAMES = {"Darwin": "macOS"}
CLAIM = re.compile(r"\((\d+) vs\. (\d+)\)")
CPU_INFO = "/proc/cpuinfo"
# By an architecture of LLVM's triples: how a line of CPU_INFO that lists instruction sets begins,
# and a target that every such CPU can run.
INSTRUCTION_SETS = {"x86_64": ("flags", "x86-64-v3"), "aarch64": ("Features", "aarch64-linux-gnu")}
TILES = "amx-int8"  # the set that Linux gives to those that ask for it
# LLVM's names of sets that Linux calls something else.
LINUX_NAMES = {TILES: "amxint8", "dotprod": "asimddp", "fullfp16": "asimdhp", "neon": "asimd"}
CPU, POOLED = 1, 2  # DLDeviceType, and TVM's allocator that keeps what it gets


class Host:
    """The processor as what runs a model: arrays are where NumPy has them, and stay there."""

    vm = (CPU, 0, POOLED)

    def __init__(self, manifest: Manifest) -> None:
        self._threads = threads_of(manifest)
        check_machine(manifest.target)
        file = manifest.weights_file
        self._watched = WatchedFile(file, manifest.stamps[file])

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Return an empty context: loading code needs nothing here."""
        yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Ensure what must hold while it runs: whole weights, and a pool of the model's threads."""
        self._watched.check()
        _thread_pool()(1, self._threads)  # 1: any core
        yield

    def weights(self, manifest: Manifest, _progress: Callable[[float], None]) -> list[Any]:
        """The weights, as tensors over the mapped file: copy-on-write, DLPack wants writable."""
        import tvm_ffi

        mapped = self._watched.mapped()
        tensors = []
        for spec in manifest.weights:
            raw = mapped[spec.offset : spec.offset + spec.nbytes()].view(DTYPES[spec.dtype])
            tensors.append(tvm_ffi.from_dlpack(raw.reshape(spec.sizes({}))))
        return tensors

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:  # noqa: ANN401
        """A tensor of zeros."""
        import tvm_ffi

        try:
            array = aligned(shape, DTYPES[dtype])
        except (MemoryError, ValueError):  # more than the machine has, or than there are addresses
            what = f"the machine has too little memory for {dtype}{list(shape)}"
            hint = "compile the model with a smaller --context or --batch"
            raise MachineLacks(what, hint=hint) from None
        return tvm_ffi.from_dlpack(array)

    def clear(self, tensor: Any) -> None:  # noqa: ANN401
        """Make all of a tensor zero again."""
        np.from_dlpack(tensor)[...] = 0

    def tensor(self, _name: str, array: Array) -> Any:  # noqa: ANN401
        """An input as a tensor: the array itself."""
        import tvm_ffi

        return tvm_ffi.from_dlpack(array)

    def arrays(self, tensors: Sequence[Any]) -> list[Array]:
        """Tensors as arrays: the same memory."""
        return [np.from_dlpack(tensor) for tensor in tensors]

    def write(self, tensor: Any, array: Array) -> None:  # noqa: ANN401
        """Copy an array into a tensor."""
        np.from_dlpack(tensor)[...] = array

    def decoder(self, _compiled: object, _manifest: Manifest, _state: object) -> None:
        """Return None: tokens are picked from logits, which are in host memory already."""

    def refused(self, name: str, said: str) -> RunError:
        """Return the error for a call that compiled code refuses."""
        return DoesNotFit(f"the compiled {name} refused the call: {_in_words(said)}")


@cache
def _thread_pool() -> Any:  # noqa: ANN401
    """The function of TVM's runtime that chooses how many threads it uses, and of which cores."""
    import tvm_ffi

    return tvm_ffi.get_global_func(THREADS)


def _in_words(said: str) -> str:
    """The runtime's last line, or the two sizes that a graph claims to be the same."""
    differ = CLAIM.search(said) if "match_cast" in said else None
    if differ is None:
        return last_line(said)
    return f"sizes inside the model that have to agree are {differ[1]} and {differ[2]}"


def threads_of(manifest: Manifest) -> int:
    """Choose the threads of a model; see :func:`set_threads`."""
    weight_bytes = sum(spec.nbytes() for spec in manifest.weights)
    return set_threads(weight_bytes, manifest.operations)


def set_threads(weight_bytes: int, operations: int = 0) -> int:
    """Choose the size of TVM's thread pool, unless the environment already does.

    One thread per physical core that this process may use, at most its share of CPU time: worker
    threads spin while they wait, so more of them than cores ruins every call. They sleep after a
    while, so that nothing spins between texts. Threads are not pinned: TVM would pin them to the
    first cores, whoever else is busy there, and whether or not they may be used.

    Returns:
        How many of the threads a model uses that has such weights and convolves so much: where one
        has little to do, it costs more to wake than it saves. What a generated token takes is to
        read the weights.
    """
    allowed = getattr(os, "sched_getaffinity", lambda _: set(range(os.cpu_count() or 1)))(0)
    most = str(max(1, min(_cores(allowed), _quota())))
    pool = os.environ.setdefault("TVM_NUM_THREADS", most)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", SPINS)
    worth = max(weight_bytes // BYTES_PER_THREAD, operations // OPERATIONS_PER_THREAD)
    return max(1, min(int(pool if pool.isdigit() else most), worth))


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
    arch = str(target.get("triple", "")).partition("-")[0].replace("arm64", "aarch64")
    machine = platform.machine().lower().replace("arm64", "aarch64").replace("amd64", "x86_64")
    if arch and arch != machine:
        what = f"the model was compiled for {arch}, and this machine is {machine}"
        raise MachineLacks(what, hint="compile it here, or with --target for this machine")
    _check_system(str(target.get("triple", "")))
    features = target.get("features") or []
    _check_instructions(arch, features)
    if TILES in features:
        from .tile_registers import ask_for_tiles

        ask_for_tiles(TILES)


def _check_instructions(arch: str, features: Sequence[str]) -> None:
    """Refuse a model whose code uses instructions that Linux does not list for this CPU."""
    key, lesser = INSTRUCTION_SETS.get(arch, ("", ""))
    lines = _contents(CPU_INFO).replace("_", "").splitlines()
    listed = next((line.split() for line in lines if key and line.startswith(key)), None)
    if listed is None:
        return
    if missing := [name for name in features if LINUX_NAMES.get(name, name) not in listed]:
        raise MachineLacks(
            f"the model was compiled for a CPU with {', '.join(missing)}, which this one has not",
            hint=f"compile it here, or with --target cpu:{lesser}",
        )


def _check_system(triple: str) -> None:
    """Refuse a model for another operating system, whose libraries this one cannot load."""
    compiled = next((name for word, name in SYSTEMS.items() if word in triple), None)
    here = platform.system()
    if compiled is not None and compiled != here:
        wanted, runs = (USUAL_NAMES.get(name, name) for name in (compiled, here))
        what = f"the model was compiled for {wanted}, and this machine runs {runs}"
        raise MachineLacks(what, hint=f"run it under {wanted}, in a container for instance")
