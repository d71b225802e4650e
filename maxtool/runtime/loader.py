#!/usr/bin/env python3
"""Run the compiled model in this folder.

As a program::

    python run.py --prompt "Once upon a time" --max-tokens 100
    python run.py --inputs x.npz --output y.npz

As a module::

    import run
    model = run.load()
    logits = model(input_ids=[[1, 2, 3]])["logits"]
    for token in model.generate(model.encode("Once upon a time"), max_tokens=100): ...

It needs NumPy, apache-tvm-ffi and TVM's runtime library; for text also ``tokenizers``. Exit codes:
0 ok, 1 a file does not match its checksum, 2 usage, 3 an input or the manifest is malformed, 4 what
was asked does not fit the model, 6 the machine lacks something, 130 interrupted.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = "maxtool.artifact/1"
ALIGNMENT = 64
BYTES_PER_THREAD = 4 << 20
MAX_MANIFEST = 64 << 20
MAX_SIZE = 1 << 48
BULKY = {"schema", "module", "entries", "state", "weights", "files", "sources", "tokenizer"}
SPEC_KEYS = (("name", str), ("dtype", str), ("shape", list))
# bfloat16 has no NumPy type of its own: its arrays hold the bits.
DTYPES = {name: np.dtype(name) for name in ("bool", "float16", "float32", "float64")}
DTYPES |= {
    f"{sign}int{n}": np.dtype(f"{sign}int{n}") for sign in ("", "u") for n in (8, 16, 32, 64)
}
DTYPES["bfloat16"] = np.dtype("uint16")
RUNTIME = {"darwin": "libtvm_runtime.dylib"}.get(sys.platform, "libtvm_runtime.so")
THREADS = "runtime.config_threadpool"  # a function of that library
Array = np.ndarray[Any, Any]


class RunError(Exception):
    """A failure with one clear message; each class has its exit code."""

    exit_code = 1


class NotVerified(RunError):
    """A file does not match its recorded checksum."""


class BadUsage(RunError):
    """The options ask for something impossible."""

    exit_code = 2


class BadInput(RunError):
    """An input, or the manifest, is missing or malformed."""

    exit_code = 3


class DoesNotFit(RunError):
    """What was asked does not fit the model."""

    exit_code = 4


class MachineLacks(RunError):
    """The machine has not what the model needs."""

    exit_code = 6


# --- the manifest ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """A tensor as the manifest describes it; a dimension with a name is known at run time."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    offset: int = 0

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The shape, with the sizes that ``dims`` gives to names."""
        return tuple(dims[d] if isinstance(d, str) else d for d in self.shape)

    def nbytes(self) -> int:
        """Bytes of a tensor without named dimensions."""
        return math.prod(self.sizes({})) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Entry:
    """A function of the model: its arrays in order, and whether it reads and writes the state."""

    function: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    state: bool


class Manifest:
    """``manifest.json``, every part of it checked.

    Raises:
        BadInput: If it is missing, malformed, or points out of its folder or of a file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.path = folder / "manifest.json"
        self.root = self._load()
        get, root = self._get, self.root
        self.module = self._file(get(root, "module", str))
        self.entries = {name: self._entry(e) for name, e in get(root, "entries", dict).items()}
        self.state = self._specs(root, "state")
        self.weights_file = self._file(get(get(root, "weights", dict), "file", str))
        self.weights = self._specs(root["weights"], "tensors")
        self.context: int | None = get(root, "context", (int, type(None)))
        self.target: dict[str, Any] = get(root, "target", dict)
        self.limits: dict[str, Any] = get(root, "limits", (dict, type(None))) or {}
        self.tokenizer_file: Path | None = None
        self.bos: int | None = None
        self.eos: tuple[int, ...] = ()
        if root.get("tokenizer") is not None:
            self._read_tokenizer(get(root, "tokenizer", dict))
        recorded = get(root, "files", dict).items()
        self.files = {self._file(name): get(item, "sha256", str) for name, item in recorded}
        self._check()

    def verify(self) -> None:
        """Check every recorded SHA-256; raises ``NotVerified`` that names a file that differs."""
        for path, expected in self.files.items():
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            if digest != expected:
                what = f"{path} is not the file that was compiled: its SHA-256 is another"
                raise NotVerified(f"{what} (--no-verify runs it anyway)")

    def _load(self) -> dict[str, Any]:
        try:
            with self.path.open("rb") as stream:
                root = json.loads(stream.read(MAX_MANIFEST))
        except OSError as error:
            raise BadInput(f"cannot read {self.path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"not valid JSON: {error}") from None
        if not isinstance(root, dict) or root.get("schema") != SCHEMA:
            raise self._wrong(f"not a manifest of schema {SCHEMA}")
        return root

    def _wrong(self, what: str) -> BadInput:
        return BadInput(f"{self.path}: {what}")

    def _get(self, holder: object, key: str, kind: type | tuple[type, ...]) -> Any:  # noqa: ANN401
        """``holder[key]``, which must be of ``kind``; a truth value is no number."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(f"{key!r} is missing or wrong: {value!r:.80}")
        return value

    def _file(self, name: str) -> Path:
        """The path of a file of the artifact, which must lie inside its folder."""
        path = self.folder / name
        try:
            inside, there = path.resolve().is_relative_to(self.folder), path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # what the system takes for no name
            raise self._wrong(f"{name!r:.80} is no file: {error!s:.80}") from None
        if not inside:
            raise self._wrong(f"{name!r:.80} lies outside the folder")
        if not there:
            raise self._wrong(f"{name!r:.80} is missing")
        return path

    def _specs(self, holder: object, key: str) -> tuple[Spec, ...]:
        """A list of tensors, no name twice."""
        found = tuple(self._spec(item) for item in self._get(holder, key, list))
        if len({spec.name for spec in found}) != len(found):
            raise self._wrong(f"{key!r} names a tensor twice")
        return found

    def _spec(self, item: object) -> Spec:
        name, dtype, shape = (self._get(item, *key) for key in SPEC_KEYS)
        good = all(type(d) is str or (type(d) is int and 0 < d <= MAX_SIZE) for d in shape)
        offset = item.get("offset", 0) if isinstance(item, dict) else 0
        if dtype not in DTYPES or not good or type(offset) is not int:
            raise self._wrong(f"tensor {name!r} is {dtype!r:.40}, {shape!r:.80}, at {offset!r:.40}")
        return Spec(name, dtype, tuple(shape), offset)

    def _entry(self, item: object) -> Entry:
        inputs, outputs = self._specs(item, "inputs"), self._specs(item, "outputs")
        state = self._get(item, "state", bool)
        return Entry(self._get(item, "function", str), inputs, outputs, state)

    def _read_tokenizer(self, item: dict[str, Any]) -> None:
        self.tokenizer_file = self._file(self._get(item, "file", str))
        self.eos = tuple(self._get(item, "eos_token_ids", list))
        bos = self._get(item, "bos_token_id", (int, type(None)))
        self.bos = bos if self._get(item, "add_bos", bool) else None
        if not all(type(token) is int for token in self.eos):
            raise self._wrong(f"'eos_token_ids' is {self.eos!r:.80}")

    def _check(self) -> None:
        """Refuse what is well-formed but contradicts itself or the files."""
        for path in filter(None, (self.module, self.weights_file, self.tokenizer_file)):
            if path not in self.files:
                raise self._wrong(f"'files' does not list {path.name}")
        size = self.weights_file.stat().st_size
        for spec in self.weights:
            fixed = all(isinstance(d, int) for d in spec.shape)
            if not fixed or not 0 <= spec.offset <= size - spec.nbytes() or spec.offset % ALIGNMENT:
                place = f"at byte {spec.offset} of {size}, aligned to {ALIGNMENT}"
                raise self._wrong(f"{spec} cannot be {place}, in {self.weights_file.name}")
        for name, entry in self.entries.items():
            if entry.state:
                self._check_stateful(name, entry)
        for name, limit in self.limits.items():
            pair = limit if isinstance(limit, list) and len(limit) == 2 else [limit]
            if not all(type(value) is int for value in pair):
                raise self._wrong(f"the limit of {name!r} is {limit!r:.80}")

    def _check_stateful(self, name: str, entry: Entry) -> None:
        """An entry that writes the state says where, and how much: the position is checked."""
        inputs = {spec.name: spec for spec in entry.inputs}
        ids, position = inputs.get("input_ids"), inputs.get("position")
        if not ids or len(ids.shape) != 2 or not position or position.shape != (1,):
            raise self._wrong(f"{name!r} has state, but not input_ids[batch, seq] and position[1]")
        if self.context is None:
            raise self._wrong(f"{name!r} has state, but there is no context")
        known = {size for spec in entry.inputs for size in spec.shape}
        named = [size for spec in self.state for size in spec.shape if isinstance(size, str)]
        if not known.issuperset(named):
            raise self._wrong(f"no input of {name!r} has the sizes {', '.join(named):.80}")


# --- the machine ----------------------------------------------------------------------------------


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


# --- the model ------------------------------------------------------------------------------------


def aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros at a 64-byte boundary, which compiled code relies on."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


class State:
    """The memory of one generation: zeros at first, written in place by each call."""

    def __init__(self, specs: Sequence[Spec], dims: Mapping[str, int]) -> None:
        import tvm_ffi

        named = {size for spec in specs for size in spec.shape if isinstance(size, str)}
        if wrong := [name for name in sorted(named) if dims.get(name, 0) < 1]:
            raise BadUsage(f"a state needs the sizes of {', '.join(wrong)}, from 1 up")
        self.specs, self.dims = specs, {name: dims[name] for name in named}
        self.arrays = [aligned(spec.sizes(dims), DTYPES[spec.dtype]) for spec in specs]
        self.tensors = tvm_ffi.Array([tvm_ffi.from_dlpack(array) for array in self.arrays])


class Model:
    """A compiled model.

    Calling it runs the entry ``forward``; :meth:`run` runs any entry. Arrays go in and come out by
    name. Weights are mapped from the file, not copied. Threads may share it; their calls wait for
    each other.
    """

    def __init__(self, manifest: Manifest, *, verified: bool = True) -> None:
        self._threads = set_threads(sum(spec.nbytes() for spec in manifest.weights))
        check_machine(manifest.target)
        self.manifest = manifest
        self._machine = open_module(manifest, verified=verified)
        self._weights = _map_weights(manifest)
        self._functions = {name: self._function(e) for name, e in manifest.entries.items()}
        self._tokenizer: Any = None
        # Concurrent calls of one virtual machine crash the process.
        self._lock = threading.Lock()

    def _function(self, entry: Entry) -> Any:  # noqa: ANN401
        try:
            found = self._machine.get_function(entry.function)
        except (AttributeError, RuntimeError):
            found = None
        if found is None:
            raise BadInput(f"{self.manifest.module} has no function {entry.function!r}")
        return found

    def __call__(self, **arrays: object) -> dict[str, Array]:
        """Run ``forward``."""
        return self.run("forward", arrays)

    def entry(self, name: str) -> Entry:
        """An entry by name; raises ``DoesNotFit`` that lists those there are."""
        if name not in self.manifest.entries:
            known = ", ".join(self.manifest.entries)
            raise DoesNotFit(f"the model has no entry {name!r}; it has {known}")
        return self.manifest.entries[name]

    def new_state(self, **dims: int) -> State:
        """Zeroed state for the given sizes of named dimensions, such as ``batch=1``."""
        return State(self.manifest.state, dims)

    def run(
        self, name: str, arrays: Mapping[str, object], state: State | None = None
    ) -> dict[str, Array]:
        """Run an entry.

        Args:
            name: The entry.
            arrays: Inputs by name. An integer or float type is widened where nothing is lost.
            state: Memory from :meth:`new_state`; fresh zeros where the entry needs it and has none.

        Raises:
            BadInput: If an array is missing, unknown, or of another type or shape.
            DoesNotFit: If sizes or values go beyond the model's limits, or the state is another's.
        """
        entry = self.entry(name)
        inputs, dims = self._bind(entry, arrays)
        self._check_position(entry, inputs)
        memory = [self._fitting(state, dims).tensors] if entry.state else []
        result = self._call(name, [inputs[spec.name] for spec in entry.inputs], memory)
        return self._outputs(entry, result)

    def _bind(
        self, entry: Entry, arrays: Mapping[str, object]
    ) -> tuple[dict[str, Array], dict[str, int]]:
        """The inputs, each checked and aligned, and the sizes of the named dimensions."""
        wanted = {spec.name for spec in entry.inputs}
        missing, unknown = wanted - arrays.keys(), arrays.keys() - wanted
        if missing or unknown:
            parts = {"missing": sorted(missing), "unknown": sorted(unknown)}
            said = ", ".join(f"{k} {', '.join(v)}" for k, v in parts.items() if v)
            raise BadInput(f"{said}; the entry takes {', '.join(map(str, entry.inputs))}")
        dims: dict[str, int] = {}
        bound = {s.name: _checked(s, np.asarray(arrays[s.name]), dims) for s in entry.inputs}
        self._check_limits(bound, dims)
        return bound, dims

    def _check_limits(self, inputs: Mapping[str, Array], dims: Mapping[str, int]) -> None:
        for name, limit in self.manifest.limits.items():
            if isinstance(limit, int):
                if dims.get(name, 0) > limit:
                    raise DoesNotFit(f"{name} is {dims[name]}; the model takes at most {limit}")
            elif name in inputs:
                low, high = int(inputs[name].min()), int(inputs[name].max())
                if low < limit[0] or high > limit[1]:
                    what = f"{name} has values from {low} to {high}"
                    raise DoesNotFit(f"{what}; the model takes {limit[0]} to {limit[1]}")

    def _check_position(self, entry: Entry, inputs: Mapping[str, Array]) -> None:
        """Refuse a position whose tokens would be written behind the end of the state."""
        if not entry.state or self.manifest.context is None:
            return
        position, length = int(inputs["position"][0]), inputs["input_ids"].shape[1]
        if position < 0 or position + length > self.manifest.context:
            what = f"position {position} and {length} tokens"
            raise DoesNotFit(f"{what} go beyond the context of {self.manifest.context}")

    def _fitting(self, state: State | None, dims: Mapping[str, int]) -> State:
        """The state given, which must be of this model and these sizes; new memory if None."""
        if state is None:
            return State(self.manifest.state, dims)
        if state.specs is not self.manifest.state or not state.dims.items() <= dims.items():
            raise DoesNotFit(f"the state is of another model, or of other sizes: {state.dims}")
        return state

    def _call(self, name: str, inputs: Sequence[Array], memory: Sequence[object]) -> Any:  # noqa: ANN401
        import tvm_ffi

        tensors = [tvm_ffi.from_dlpack(array) for array in inputs]
        try:
            with self._lock:
                use_threads = tvm_ffi.get_global_func(THREADS)
                use_threads(1, self._threads)  # 1: any core
                return self._functions[name](*tensors, *memory, self._weights)
        except (RuntimeError, ValueError, TypeError) as error:
            raise DoesNotFit(f"the compiled {name} refused the call: {last_line(error)}") from None

    def _outputs(self, entry: Entry, result: Any) -> dict[str, Array]:  # noqa: ANN401
        """The results by name; bfloat16 is widened to float32."""
        results = [result] if len(entry.outputs) == 1 and hasattr(result, "shape") else list(result)
        arrays = {s.name: np.from_dlpack(r) for s, r in zip(entry.outputs, results, strict=True)}
        for spec in entry.outputs:
            if spec.dtype == "bfloat16":
                bits = arrays[spec.name].view(np.uint16).astype(np.uint32) << 16
                arrays[spec.name] = bits.view(np.float32)
        return arrays

    # text and generation

    @property
    def tokenizer(self) -> Any:  # noqa: ANN401 - an optional package
        """The ``tokenizers.Tokenizer`` of the artifact."""
        if self._tokenizer is None:
            self._tokenizer = _open_tokenizer(self.manifest)
        return self._tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the beginning-of-text token where the model expects it.

        Raises:
            BadInput: If it holds half of a character, as undecodable bytes of a command line do.
        """
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise BadInput("the prompt is no valid text")
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        bos = self.manifest.bos
        return ids if bos is None or ids[:1] == [bos] else [bos, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def generate(
        self,
        ids: Sequence[int],
        max_tokens: int = 100,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[int]:
        """Continue a sequence of token ids, one token at a time.

        Ends after ``max_tokens``, before an end-of-text token, or when the context is full.
        Temperature 0 takes the likeliest token; otherwise tokens are drawn, from the ``top_k``
        likeliest and from the fewest that hold the share ``top_p`` of the probability.

        Raises:
            BadUsage: If an option is out of range.
            BadInput: If there are no ids.
            DoesNotFit: If they are more than the context, or outside the vocabulary.
        """
        choose = chooser(temperature, top_k, top_p, seed)
        if max_tokens < 0:
            raise BadUsage(f"max-tokens is {max_tokens}")
        if not len(ids):
            raise BadInput("the prompt is empty")
        if self.room(len(ids)) < 1:
            what = f"the prompt has {len(ids)} tokens"
            raise DoesNotFit(f"{what}; the context of the model holds {self.manifest.context}")
        for name in ("prefill", "decode"):
            if "logits" not in {spec.name for spec in self.entry(name).outputs}:
                raise DoesNotFit(f"{name} gives no logits: this is no language model")
        self._bind(self.entry("prefill"), {"input_ids": [ids], "position": [0]})
        return self._generate(list(ids), min(max_tokens, self.room(len(ids))), choose)

    def room(self, length: int) -> int:
        """Tokens that can be generated behind ``length`` others: the last is not read again."""
        context = self.manifest.context
        return sys.maxsize if context is None else context - length + 1

    def _generate(
        self, ids: list[int], count: int, choose: Callable[[Array], int]
    ) -> Iterator[int]:
        state = self.new_state(batch=1)
        name, position = "prefill", 0
        for _ in range(count):
            given = {"input_ids": [ids], "position": np.array([position], np.int32)}
            outputs = self.run(name, given, state)
            chosen = choose(outputs["logits"][0])
            if chosen in self.manifest.eos:
                return
            yield chosen
            name, position, ids = "decode", position + len(ids), [chosen]


def load(path: str | os.PathLike[str] | None = None, *, check: bool = True) -> Model:
    """Open an artifact; ``path`` is its folder, that of this file if None.

    Raises:
        NotVerified: If ``check`` is true and a file is not the one that was compiled.
        BadInput: If the manifest is missing or malformed.
        MachineLacks: If the runtime is missing or the CPU is another.
    """
    folder = Path(__file__).parent if path is None else Path(path)
    manifest = Manifest(folder)
    if check:
        manifest.verify()
    return Model(manifest, verified=check)


def _map_weights(manifest: Manifest) -> Any:  # noqa: ANN401
    """The weights, as tensors over the mapped file: copy-on-write, since DLPack wants writable."""
    import tvm_ffi

    size = manifest.weights_file.stat().st_size
    mapped = (
        np.memmap(manifest.weights_file, np.uint8, "c") if size else aligned((0,), np.dtype("u1"))
    )
    tensors = []
    for spec in manifest.weights:
        raw = mapped[spec.offset : spec.offset + spec.nbytes()]
        tensors.append(tvm_ffi.from_dlpack(raw.view(DTYPES[spec.dtype]).reshape(spec.sizes({}))))
    return tvm_ffi.Array(tensors)


def _checked(spec: Spec, array: Array, dims: dict[str, int]) -> Array:
    """One input, aligned and of its type; names of dimensions get their sizes in ``dims``."""
    dtype = DTYPES[spec.dtype]
    python = array.dtype == np.int64 and dtype.kind == "i"
    if not (np.can_cast(array.dtype, dtype) or (python and _fits(array, dtype))):
        raise BadInput(f"{spec.name} is {array.dtype}; the model takes {spec}")
    if array.ndim != len(spec.shape) or not array.size:
        raise BadInput(f"{spec.name} has shape {array.shape}; the model takes {spec}")
    for size, wanted in zip(array.shape, spec.shape, strict=True):
        expected = dims.setdefault(wanted, size) if isinstance(wanted, str) else wanted
        if size != expected:
            raise BadInput(
                f"{spec.name} has shape {array.shape}; the model takes {spec}"
                + (f" with {wanted} {expected}" if isinstance(wanted, str) else "")
            )
    copy = aligned(array.shape, dtype)
    copy[...] = array
    return copy


def _fits(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether Python's integers, which NumPy makes int64, are all in the range of ``dtype``."""
    limits = np.iinfo(dtype)
    return bool(array.size and limits.min <= array.min() and array.max() <= limits.max)


def _open_tokenizer(manifest: Manifest) -> Any:  # noqa: ANN401
    if manifest.tokenizer_file is None:
        raise DoesNotFit("this artifact has no tokenizer; give --ids instead of text")
    try:
        import tokenizers
    except ImportError:
        raise MachineLacks("text needs the tokenizers package: pip install tokenizers") from None
    try:
        return tokenizers.Tokenizer.from_file(str(manifest.tokenizer_file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the package is no Exception
        raise BadInput(f"cannot read {manifest.tokenizer_file}: {last_line(error)}") from None


# --- sampling and text ----------------------------------------------------------------------------


def chooser(
    temperature: float, top_k: int | None, top_p: float | None, seed: int | None
) -> Callable[[Array], int]:
    """The function that picks a token from logits; raises ``BadUsage`` for options out of range."""
    if not 0 <= temperature < math.inf:
        raise BadUsage(f"temperature {temperature} is not a finite number from 0 up")
    if (top_k is not None and top_k < 1) or (top_p is not None and not 0 < top_p <= 1):
        raise BadUsage("top-k counts tokens from 1 up, and top-p is a share from 0 to 1")
    if seed is not None and seed < 0:
        raise BadUsage(f"seed {seed} is negative")
    random = np.random.default_rng(seed)

    def choose(logits: Array) -> int:
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise RunError("the model's logits are not finite numbers")
        if temperature == 0:
            return best
        order = np.argsort(-logits)[:top_k]
        with np.errstate(over="ignore"):  # minus infinity is a share of 0
            scaled = np.exp((logits[order].astype(np.float64) - float(logits[best])) / temperature)
        shares = scaled / scaled.sum()
        kept = order.size
        if top_p is not None:
            kept = int(np.searchsorted(shares.cumsum(), top_p)) + 1
        shares = shares[:kept] / shares[:kept].sum()
        return int(random.choice(order[:kept], p=shares))

    return choose


class TextStream:
    """Text of tokens as they come: characters are given out when all their bytes are there.

    Each step decodes the tokens since the last but one piece given out, which are few, so that a
    leading space or a character in several tokens comes out as in the text decoded at once.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> None:
        self._decode = decode
        self._ids = list(ids)
        self._start, self._done = 0, len(self._ids)

    def push(self, token: int) -> str:
        """The text that ``token`` completes."""
        self._ids.append(token)
        text = self._pending()
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        return self._take(text)

    def flush(self) -> str:
        """What is left, incomplete characters replaced."""
        return self._take(self._pending())

    def _pending(self) -> str:
        given = self._decode(self._ids[self._start : self._done])
        return self._decode(self._ids[self._start :])[len(given) :]

    def _take(self, text: str) -> str:
        if text:
            self._start, self._done = self._done, len(self._ids)
        return text


# --- the program ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """What the program is asked to do."""

    folder: Path
    prompt: str | None = None
    ids: list[int] | None = None
    max_tokens: int = 100
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    inputs: Path | None = None
    output: Path | None = None
    entry: str = "forward"
    force: bool = False
    info: bool = False
    verify: bool = True
    json: bool = False
    quiet: bool = False


def execute(options: Options) -> None:
    """Do what is asked; raises ``RunError``."""
    asked = [options.prompt is not None, options.ids is not None, options.inputs is not None]
    if sum([*asked, options.info]) != 1:
        raise BadUsage("give one of --prompt, --ids, --inputs and --info")
    if options.inputs is None and (options.output or options.entry != "forward"):
        raise BadUsage("--output and --entry go with --inputs")
    if options.info:
        show_info(options)
    elif options.inputs is not None:
        run_arrays(options, options.inputs)
    else:
        run_text(options)


def show_info(options: Options) -> None:
    """Print what the manifest says of the model."""
    manifest = Manifest(options.folder)
    if options.verify:
        manifest.verify()
    summary = {key: value for key, value in manifest.root.items() if key not in BULKY}
    summary["weights_bytes"] = sum(spec.nbytes() for spec in manifest.weights)
    for name, entry in manifest.entries.items():
        sides = (", ".join(map(str, side)) for side in (entry.inputs, entry.outputs))
        summary[name] = " -> ".join(sides)
    if options.json:
        emit_json("maxtool.info/1", summary)
        return
    for key, value in summary.items():
        text = value if isinstance(value, str) else json.dumps(value)
        emit(printable(f"{key + ':':<15} {text}") + "\n")


def run_text(options: Options) -> None:
    """Generate, showing the text as it comes and the speed at the end."""
    model = load(options.folder, check=options.verify)
    ids = options.ids if options.ids is not None else model.encode(options.prompt or "")
    tokens = model.generate(
        ids,
        options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
    )
    show = (lambda _text: None) if options.json else emit_text
    stream = TextStream(model.decode, ids) if model.manifest.tokenizer_file else None
    prompt = options.prompt if options.prompt is not None else ""
    show(prompt)
    pieces, made, times = [prompt], [], [time.perf_counter()]
    for token in tokens:
        made.append(token)
        times.append(time.perf_counter())
        pieces.append(stream.push(token) if stream else f"{token} ")
        show(pieces[-1])
    pieces.append(stream.flush() if stream else "")
    show(pieces[-1] + "\n")
    report(options, model, ids, made, times, "".join(pieces))


def report(
    options: Options,
    model: Model,
    ids: Sequence[int],
    made: list[int],
    times: list[float],
    text: str,
) -> None:
    """Say why generation ended and how fast it was."""
    full = len(made) == model.room(len(ids))
    stopped = "context" if full else "length" if len(made) == options.max_tokens else "end"
    if full:
        note(options, f"stopped: the context of {model.manifest.context} tokens is full")
    speed = {"prefill": rate(len(ids), times[:2]), "decode": rate(len(made) - 1, times[1:])}
    if options.json:
        emit_json(
            "maxtool.generation/1",
            {
                "prompt_ids": list(ids),
                "ids": made,
                "text": text,
                "stopped": stopped,
                "tokens_per_second": speed,
            },
        )
    said = ", ".join(f"{name} {value:.1f} tokens/s" for name, value in speed.items() if value)
    note(options, f"{len(ids)} tokens read, {len(made)} made; {said or 'too few to time'}")


def rate(count: int, times: Sequence[float]) -> float | None:
    """Things per second between the first and the last time."""
    seconds = times[-1] - times[0] if times else 0.0
    return count / seconds if count > 0 and seconds > 0 else None


def run_arrays(options: Options, path: Path) -> None:
    """Run an entry on the arrays of an npz file and write its outputs to another."""
    check_output(options)
    model = load(options.folder, check=options.verify)
    arrays, ignored = read_arrays(path, {spec.name for spec in model.entry(options.entry).inputs})
    started = time.perf_counter()
    outputs = model.run(options.entry, arrays)
    seconds = time.perf_counter() - started
    if ignored:
        note(options, f"ignored, as {options.entry} does not take it: {', '.join(ignored)}")
    if options.output is not None:
        write_arrays(options.output, outputs)
    shapes = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in outputs.items()}
    if options.json:
        emit_json(
            "maxtool.run/1",
            {
                "entry": options.entry,
                "outputs": shapes,
                "ignored": ignored,
                "output": str(options.output or ""),
                "seconds": seconds,
            },
        )
        return
    for name, array in outputs.items():
        emit(f"{printable(name)} {array.dtype}{list(array.shape)}\n")
    note(options, f"{options.entry} took {seconds * 1000:.2f} ms")


def check_output(options: Options) -> None:
    """Refuse an output that cannot or must not be written, before any work is done."""
    output = options.output
    if output is None:
        return
    if not output.resolve().parent.is_dir():
        raise BadUsage(f"{output}: its folder does not exist")
    if output.is_dir() or (options.inputs and output.resolve() == options.inputs.resolve()):
        raise BadUsage(f"{output} cannot be the output")
    if os.path.lexists(output) and not options.force:
        raise BadUsage(f"{output} exists; --force replaces it")


def read_arrays(path: Path, wanted: set[str]) -> tuple[dict[str, Array], list[str]]:
    """The wanted arrays of an npz file, and the names of the others."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = list(archive.files)
            return {n: archive[n] for n in names if n in wanted}, sorted({*names} - wanted)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:
        # zipfile, zlib and NumPy raise a dozen kinds for damaged files.
        raise BadInput(f"{path} is no npz file of plain arrays: {last_line(error)}") from None


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an npz file, whole or not at all."""
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with staging.open("xb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


def printable(text: str) -> str:
    """Text with everything that a terminal might act on written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def emit(text: str) -> None:
    """Write data to stdout at once."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError:  # Python would write what is left again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def emit_text(text: str) -> None:
    """Write generated text; on a terminal without control characters other than line ends."""
    if sys.stdout.isatty():
        text = "".join(c for c in text if c in "\n\t" or c.isprintable())
    emit(text)


def emit_json(schema: str, content: Mapping[str, object]) -> None:
    """Write one JSON object to stdout."""
    emit(json.dumps({"schema": schema, **content}, indent=2) + "\n")


def note(options: Options, text: str) -> None:
    """Write something worth knowing to stderr."""
    if not options.quiet:
        sys.stderr.write(f"{printable(text)}\n")


def parse(argv: Sequence[str] | None) -> Options:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="text to continue")
    what.add_argument("--ids", type=integers, help="token ids to continue, such as 1,2,3")
    what.add_argument("--inputs", type=Path, metavar="NPZ", help="arrays to run an entry on")
    what.add_argument("--info", action="store_true", help="say what this model is")
    add = parser.add_argument
    add("--max-tokens", type=int, default=100, metavar="N", help="tokens to generate (100)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0, the default, is greedy")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest with the share P")
    add("--seed", type=int, help="make drawing repeatable")
    add("--output", type=Path, metavar="NPZ", help="where the outputs of --inputs go")
    add("--entry", default="forward", help="the entry to run (forward)")
    add("--force", action="store_true", help="replace an existing --output")
    add("--no-verify", dest="verify", action="store_false", help="skip the checksums")
    add("--json", action="store_true", help="print one JSON object")
    add("-q", "--quiet", action="store_true", help="no notes on stderr")
    return Options(folder=Path(__file__).parent, **vars(parser.parse_args(argv)))


def integers(text: str) -> list[int]:
    """Integers separated by commas or spaces."""
    return [int(part) for part in text.replace(",", " ").split()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code."""
    open_streams()
    options = parse(argv)
    try:
        execute(options)
    except RunError as error:
        return fail(options, error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 141
    except OSError as error:
        place = "" if error.filename is None else f": {error.filename}"
        return fail(options, MachineLacks(f"{error.strerror or error}{place}"))
    except MemoryError:
        return fail(options, MachineLacks("not enough memory"))
    return 0


def open_streams() -> None:
    """Put something in the place of streams that were closed before the program began."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115


def fail(options: Options, error: RunError) -> int:
    """Say what went wrong; its exit code."""
    sys.stderr.write(f"error: {printable(str(error))}\n")
    if options.json:
        content = {"class": type(error).__name__, "what": str(error)}
        emit_json("maxtool.error/1", {"error": {**content, "exit_code": error.exit_code}})
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
