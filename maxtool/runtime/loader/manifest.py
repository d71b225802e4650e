"""``manifest.json``: what is in the folder, every part of it checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import BadInput, NotVerified

SCHEMA = "maxtool.artifact/1"
ALIGNMENT = 64
MAX_MANIFEST = 64 << 20
MAX_SIZE = 1 << 48
IDS = ("input_ids", "token")
# Entries that draw tokens by themselves, and what they take and give: names, types, numbers of
# dimensions.
SAMPLED = {"sample_prefill", "sample_decode"}
DRAWING = ("token int64 2", "position int32 1", "draws float32 1", "settings float32 1")
SETTINGS = 5
SPEC_KEYS = (("name", str), ("dtype", str), ("shape", list))
# bfloat16 has no NumPy type of its own: its arrays hold the bits.
DTYPES = {name: np.dtype(name) for name in ("bool", "float16", "float32", "float64")}
DTYPES |= {
    f"{sign}int{n}": np.dtype(f"{sign}int{n}") for sign in ("", "u") for n in (8, 16, 32, 64)
}
DTYPES["bfloat16"] = np.dtype("uint16")


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

    @property
    def ids(self) -> Spec | None:
        """The input of token ids: one of those the next position follows from."""
        return next((spec for spec in self.inputs if spec.name in IDS), None)


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
        self.devices: int = get(root, "devices", (int, type(None))) or 1
        self.weights_files = self._weights_files(get(root, "weights", dict))
        self.weights_file = self.weights_files[0]
        self.weights = self._specs(root["weights"], "tensors")
        self.context: int | None = get(root, "context", (int, type(None)))
        # Texts longer than this are read in another way: what was cached before is of no use then.
        self.reread_beyond: int | None = get(root, "reread_beyond", (int, type(None)))
        self.target: dict[str, Any] = get(root, "target", dict)
        self.limits: dict[str, Any] = get(root, "limits", (dict, type(None))) or {}
        self.tokenizer_file: Path | None = None
        self.bos: int | None = None
        self.eos: tuple[int, ...] = ()
        self.chat_template: Path | None = None
        self.special_tokens: dict[str, str] = {}
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

    def _weights_files(self, item: dict[str, Any]) -> tuple[Path, ...]:
        """The file of the weights, or that of each device."""
        if self.devices == 1:
            return (self._file(self._get(item, "file", str)),)
        names = self._get(item, "files", list)
        if len(names) != self.devices or not all(isinstance(name, str) for name in names):
            raise self._wrong(
                f"'files' of the weights is {names!r:.80}, for {self.devices} devices"
            )
        return tuple(map(self._file, names))

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
        template = self._get(item, "chat_template", (str, type(None)))
        self.chat_template = None if template is None else self._file(template)
        self.special_tokens = self._get(item, "special_tokens", (dict, type(None))) or {}
        if not all(isinstance(text, str) for text in self.special_tokens.values()):
            raise self._wrong(f"'special_tokens' is {self.special_tokens!r:.80}")

    def _check(self) -> None:
        """Refuse what is well-formed but contradicts itself or the files."""
        used = (self.module, *self.weights_files, self.tokenizer_file, self.chat_template)
        for path in filter(None, used):
            if path not in self.files:
                raise self._wrong(f"'files' does not list {path.name}")
        size = min(file.stat().st_size for file in self.weights_files)
        for spec in self.weights:
            fixed = all(isinstance(d, int) for d in spec.shape)
            if not fixed or not 0 <= spec.offset <= size - spec.nbytes() or spec.offset % ALIGNMENT:
                place = f"at byte {spec.offset} of {size}, aligned to {ALIGNMENT}"
                raise self._wrong(f"{spec} cannot be {place}, in {self.weights_file.name}")
        for name, entry in self.entries.items():
            if entry.state:
                self._check_stateful(name, entry)
        for name in SAMPLED & self.entries.keys():
            self._check_sampled(name, self.entries[name])
        for name, limit in self.limits.items():
            pair = limit if isinstance(limit, list) and len(limit) == 2 else [limit]
            if not all(type(value) is int for value in pair):
                raise self._wrong(f"the limit of {name!r} is {limit!r:.80}")

    def _check_stateful(self, name: str, entry: Entry) -> None:
        """An entry that writes the state says where, and how much: the position is checked."""
        inputs = {spec.name: spec for spec in entry.inputs}
        ids, position = entry.ids, inputs.get("position")
        if not ids or len(ids.shape) != 2 or not position or position.shape != (1,):
            raise self._wrong(f"{name!r} has state, but not input_ids[batch, seq] and position[1]")
        if self.context is None:
            raise self._wrong(f"{name!r} has state, but there is no context")
        known = {size for spec in entry.inputs for size in spec.shape}
        named = [size for spec in self.state for size in spec.shape if isinstance(size, str)]
        if not known.issuperset(named):
            raise self._wrong(f"no input of {name!r} has the sizes {', '.join(named):.80}")

    def _check_sampled(self, name: str, entry: Entry) -> None:
        """Nothing else checks what such an entry is called with."""
        inputs, outputs = (
            tuple(f"{s.name} {s.dtype} {len(s.shape)}" for s in side)
            for side in (entry.inputs, entry.outputs)
        )
        if not entry.state or (inputs, outputs) != (DRAWING, DRAWING[:2]):
            raise self._wrong(f"{name!r} is not from {', '.join(DRAWING)}, and the state")
        sizes = entry.inputs[2].shape + entry.inputs[3].shape
        if sizes != (self.context, SETTINGS) or "seen" not in {spec.name for spec in self.state}:
            raise self._wrong(f"{name!r} has no draws[context], settings[{SETTINGS}] and seen")
