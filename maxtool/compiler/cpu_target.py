"""CPU targets: what a name means to LLVM, and the register tile the kernels use there."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import tvm
from tvm.target import codegen

from maxtool.dtype import DType
from maxtool.errors import MachineLacks, UsageError
from maxtool.runtime.loader.errors import RunError
from maxtool.runtime.loader.host import LINUX_NAMES
from maxtool.runtime.loader.host import TILES as TILE_REGISTERS
from maxtool.runtime.loader.tile_registers import ask_for_tiles

CPU_FLAGS = Path("/proc/cpuinfo")

# Names a CPU that this machine is taken for: one with fewer instructions than it has.
HOST_CPU = "MAXTOOL_HOST_CPU"


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """Use of a machine's vector registers by kernels."""

    width: int  # float32 values in one vector register
    mr: int  # rows of the register tile of a matrix product
    nr: int  # columns of that tile; packed weights come in blocks of ``nr`` columns
    registers: int  # vector registers of the machine
    # The LLVM feature that multiplies pairs of bfloat16 in such registers, if there is one.
    pairs: str | None = None
    # Whether a product may read an operand from memory, so that it takes no register.
    reads_memory: bool = True


# LLVM feature -> tile, widest first. A tile keeps mr * nr / width sums in registers, and leaves
# room for nr / width weights and one broadcast activation.
TILES: dict[str, RegisterTile] = {
    "avx512f": RegisterTile(width=16, mr=12, nr=32, registers=32),
    "avx2": RegisterTile(width=8, mr=6, nr=16, registers=16),
    "neon": RegisterTile(width=4, mr=6, nr=16, registers=32, reads_memory=False),
    "sse2": RegisterTile(width=4, mr=6, nr=8, registers=16),
}

# LLVM feature that multiplies pairs of bfloat16 -> the tile in whose registers it does.
PAIRS = {"avx512bf16": "avx512f", "bf16": "neon"}

# What the manifest records: what decides between kernels, and sets that LLVM uses by itself and
# that not every machine has whose CPU has the others. The rest follows from the CPU name.
RECORDED = (
    *("avx2", "avx512bf16", "avx512bw", "avx512f", "avx512fp16", "avx512vnni", "avxvnni"),
    *("bf16", "dotprod", "f16c", "fma", "fullfp16", "i8mm", "neon", "sve", "sve2"),
)

# Sets that decide between kernels, each with one that goes with it: a hypervisor may give a CPU the
# name of an older one, and pass on what it has besides.
BESIDES = {"avx512bf16": "avx512f", "avx512vnni": "avx512bw"}

# Sets that kernels use only where a target asks for them, or on this machine if its system gives
# leave to: another one's may refuse it.
ASKED = (TILE_REGISTERS,)

# Triples searched for a CPU name, in this order.
TRIPLES = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "apple": "arm64-apple-macos",
}

# Used when the kernel hides instructions that the CPU's name promises.
LEVELS = {"x86-64-v4": "avx512f", "x86-64-v3": "avx2", "x86-64": "sse2"}

# How hard LLVM works on the code, from 0 to 3: most of the time of a compilation is LLVM's.
OPT_LEVEL = 3

# LLVM prefers 256-bit vectors on some Intel CPUs; the kernels choose their own width.
WIDE_VECTORS = ("-prefer-256-bit",)


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A CPU to compile for."""

    triple: str  # LLVM's
    cpu: str  # LLVM's name of it
    features: tuple[str, ...]  # instruction sets that matter here, sorted
    tile: RegisterTile
    host: bool  # whether it is the machine this runs on
    added: tuple[str, ...] = ()  # those of the features that the name does not promise
    kind: ClassVar[str] = "cpu"

    @property
    def label(self) -> str:
        """Name in messages."""
        return self.cpu

    @property
    def processor(self) -> CpuTarget:
        """The CPU that runs the code: itself."""
        return self

    @property
    def packing(self) -> int | None:
        """Output features in a block of a packed weight; None if weights are stored as they are."""
        return self.tile.nr

    def terms(self, dtype: DType) -> int:
        """Terms of an output feature that lie side by side in a packed weight of a type."""
        return 2 if dtype is DType.bfloat16 and self.tile.pairs else 1

    def without_tiles(self) -> CpuTarget:
        """The same for code that has no products of quantized weights, which alone use AMX."""
        return replace(
            self,
            features=tuple(name for name in self.features if name != TILE_REGISTERS),
            added=tuple(name for name in self.added if name != TILE_REGISTERS),
        )

    @property
    def tvm(self) -> Any:  # noqa: ANN401 - tvm ships no types
        """The ``tvm.target.Target``."""
        wide = WIDE_VECTORS if "avx512f" in self.features else ()
        return _llvm_target(self.triple, self.cpu, (*wide, *(f"+{name}" for name in self.added)))

    @property
    def manifest(self) -> dict[str, object]:
        """Return the record of an artifact: kind, triple, cpu and features."""
        features = list(self.features)
        return {"kind": self.kind, "triple": self.triple, "cpu": self.cpu, "features": features}


def cpu_target(name: str = "cpu") -> CpuTarget:
    """The target a user names.

    Args:
        name: ``cpu`` for this machine, or for the CPU that the environment variable
            ``MAXTOOL_HOST_CPU`` says it is; ``cpu:NAME`` with an LLVM CPU name (x86-64-v3,
            znver5, neoverse-n1, apple-m1, ...) or an LLVM triple (aarch64-linux-gnu, ...);
            ``cpu:NAME+SET`` to use one of ``ASKED``, too.
    """
    target_kind, _, cpu = name.partition(":")
    if target_kind != "cpu" or name == "cpu:":
        raise UsageError(
            f"no target {name!r}", hint="give cpu for this machine, or cpu:NAME such as cpu:znver5"
        )
    if not cpu:
        return _host()
    cpu, *asked = cpu.split("+")
    triple, cpu = _resolve(cpu)
    target = _describe(triple, cpu, host=False)
    return _with_asked(target, asked) if asked else target


def _host() -> CpuTarget:
    """Return this machine, or the lesser one that ``MAXTOOL_HOST_CPU`` names."""
    machine, name = _machine(), os.environ.get(HOST_CPU, "")
    if not name:
        return machine
    if not codegen.llvm_is_valid_cpu(name, machine.triple):
        hint = f"it takes what LLVM calls a CPU like this one ({machine.cpu}), such as x86-64-v3"
        raise UsageError(f"{HOST_CPU}={name}: there is no such CPU for {machine.triple}", hint=hint)
    target = _describe(machine.triple, name, host=True)
    if lacking := sorted(set(target.features) - {*machine.features, *_kernel_flags()}):
        what = f"{HOST_CPU}={name}: this machine ({machine.cpu}) has no {', '.join(lacking)}"
        raise MachineLacks(what, hint=f"unset it; to compile for another machine: cpu:{name}")
    return target


def _machine() -> CpuTarget:
    """Return this machine, with the instructions that its operating system enables."""
    triple = codegen.llvm_get_system_triple()
    if platform.system() == "Linux":
        triple = f"{platform.machine()}-linux-gnu"
    cpu = codegen.llvm_get_system_cpu()
    target = _describe(triple, cpu, host=True)
    flags = _kernel_flags()
    if not flags:
        return target
    if set(target.features) <= flags:
        added = [
            name
            for name, beside in BESIDES.items()
            if name in flags and beside in target.features and name not in target.features
        ]
        if _has_tiles(flags) and "avx512vnni" in {*target.features, *added}:
            added.append(TILE_REGISTERS)
        return _describe(triple, cpu, host=True, added=tuple(added))
    level = next((cpu for cpu, flag in LEVELS.items() if flag in flags), "x86-64")
    return _describe(triple, level, host=True)


def _has_tiles(flags: set[str]) -> bool:
    """Return whether this machine has AMX, and lets this process use it."""
    if LINUX_NAMES[TILE_REGISTERS] not in flags:
        return False
    try:
        ask_for_tiles(TILE_REGISTERS)
    except RunError:
        return False
    return True


def _kernel_flags() -> set[str]:
    """The instruction sets that Linux lists on x86, as LLVM spells them; empty elsewhere."""
    if not CPU_FLAGS.is_file():
        return set()
    lines = CPU_FLAGS.read_text(errors="replace").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].replace("_", "").split())


def _resolve(name: str) -> tuple[str, str]:
    """Triple and CPU of a name: a triple itself, or a CPU one of the triples has."""
    if name.startswith("apple-"):
        candidates = [TRIPLES["apple"]]
    elif name.count("-") >= 2 and name.split("-")[0] in ("x86_64", "aarch64", "arm64"):
        return name, "generic" if not name.startswith("x86_64") else "x86-64"
    else:
        candidates = [TRIPLES["x86_64"], TRIPLES["aarch64"]]
    for triple in candidates:
        if name != "generic" and codegen.llvm_is_valid_cpu(name, triple):
            return triple, name
    raise _unknown(name)


def _with_asked(target: CpuTarget, asked: Sequence[str]) -> CpuTarget:
    """A CPU whose kernels use instruction sets that are only used when asked for."""
    known = set(ASKED) & codegen.llvm_get_cpu_features(target.tvm)
    if missing := sorted(set(asked) - known):
        has = f"{', '.join(sorted(known)) or 'none'} can be asked for with this CPU"
        hint = f"{has}; what it has besides is used without"
        raise UsageError(f"no {', '.join(missing)!r} to add to {target.cpu}", hint=hint)
    return replace(target, features=tuple(sorted({*target.features, *asked})))


def _unknown(name: str) -> UsageError:
    targets = [tvm.target.Target(_spec(triple, "")) for triple in TRIPLES.values()]
    known = sorted({cpu for target in targets for cpu in codegen.llvm_get_cpu_archlist(target)})
    close = difflib.get_close_matches(name, known, n=3)
    meant = f"did you mean {', '.join(close)}? " if close else ""
    listing = ", ".join(known)
    return UsageError(f"no CPU {name!r}", hint=f"{meant}Known: {listing}; or a triple")


def _describe(triple: str, cpu: str, *, host: bool, added: tuple[str, ...] = ()) -> CpuTarget:
    promised = codegen.llvm_get_cpu_features(_llvm_target(triple, cpu))
    feature_names = {*promised, *added}
    features = tuple(sorted({*RECORDED, *added} & feature_names))
    vectors = next(feature for feature in (*TILES, "sse2") if feature in {*feature_names, "sse2"})
    pairs = next((feature for feature in features if PAIRS.get(feature) == vectors), None)
    tile = replace(TILES[vectors], pairs=pairs) if pairs else TILES[vectors]
    return CpuTarget(triple, cpu, features, tile, host, added)


def _llvm_target(triple: str, cpu: str, attributes: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
    return tvm.target.Target(_spec(triple, cpu, attributes))


def _spec(triple: str, cpu: str, attributes: tuple[str, ...] = ()) -> dict[str, object]:
    spec: dict[str, object] = {"kind": "llvm", "mtriple": triple, "opt-level": OPT_LEVEL}
    if cpu:
        spec["mcpu"] = cpu
    return spec | ({"mattr": list(attributes)} if attributes else {})
