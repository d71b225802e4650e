"""``manifest.json``, read part by part: each is of its type, and each file is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

from .errors import BadInput
from .specs import (
    BEHIND,
    DTYPES,
    MAX_BATCH,
    RECORDS,
    ArraySpec,
    BufferSpec,
    EntrySpec,
    Filling,
    InputSpec,
    TableSpec,
    WeightSpec,
)
from .unwritten import Unwritten, unwritten
from .watched_files import Stamp, stamp
from .writing_spec import WritingSpec, writing_spec
from .wrong_path import TASKS, no_manifest, other_schema

SCHEMA = "maxtool.artifact/3"
FILE = "manifest.json"
MAX_MANIFEST = 64 << 20
MAX_SIZE, MAX_DIMS = 1 << 48, 32
SPEC_KEYS = (("name", str), ("dtype", str), ("shape", list))
OPTIONAL = (int, type(None))  # a number that need not be there

# The largest size of a dimension, or the least and largest value of an input.
Limit: TypeAlias = int | tuple[int, int]


class ManifestParser:
    """``manifest.json``, every part of it checked by itself: ``BadInput`` says what is wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.path = folder / FILE
        self.root = self._load()
        self.stamps: dict[Path, Stamp] = {}
        get, root = self._get, self.root
        self.module = self._file(get(root, "module", str))
        self.task: str | None = get(root, "task", (str, type(None)))
        if self.task not in TASKS:
            raise self._wrong(f"'task' is {self.task!r:.80}")
        self.entries = {name: self._entry(e) for name, e in get(root, "entries", dict).items()}
        buffers = self._tensors(root, "state")
        self.state = tuple(BufferSpec(*self._facts(item, "positions")) for item in buffers)
        self.devices = self._count(root, "devices") or 1
        self.weights_files = self._weights_files(get(root, "weights", dict))
        self.weights_file = self.weights_files[0]
        self.weights = tuple(map(self._stored, self._tensors(root["weights"], "tensors")))
        self.tables = tuple(map(self._table, self._get(root, "tables", (list, type(None))) or ()))
        # About how many operations a call's convolutions are, beside what weights say.
        self.operations = self._count(root, "operations") or 0
        self.context = self._count(root, "context")
        # Texts that the state holds side by side.
        self.batch = self._count(root, "batch") or 1
        if self.batch > MAX_BATCH:
            raise self._wrong(f"'batch' is {self.batch}; the most is {MAX_BATCH}")
        # Texts longer than this are read in another way: what was cached before is of no use then.
        self.reread_beyond = self._count(root, "reread_beyond")
        # Prompts longer than this are read in one call: what is cached depends on their length.
        self.read_whole_beyond = self._count(root, "read_whole_beyond")
        # What layers with a window hold of a text: its last positions, so many of them.
        self.kept_positions = self._count(root, "kept_positions")
        # Whether layers keep a state that each token changes, so that no token is taken back.
        self.is_recurrent = "is_recurrent" in root and get(root, "is_recurrent", bool)
        self.target = self._target(root)
        limits = get(root, "limits", (dict, type(None))) or {}
        self.limits: dict[str, Limit] = {name: self._limit(name, x) for name, x in limits.items()}
        self.tokenizer_file: Path | None = None
        self.bos: int | None = None
        self.eos: tuple[int, ...] = ()
        self.chat_template: Path | None = None
        self.special_tokens: dict[str, str] = {}
        if root.get("tokenizer") is not None:
            self._read_tokenizer(get(root, "tokenizer", dict))
        self._read_images(root)
        self._read_classes(root)
        self._read_prompts(root)
        # How samples become spectrograms, and texts begin, of a model of speech.
        self.audio: dict[str, Any] | None = get(root, "audio", (dict, type(None)))
        self.speech: dict[str, Any] | None = get(root, "speech", (dict, type(None)))
        self.writing = self._writing(get(root, "writing", (dict, type(None))))
        self.unwritten = self._unwritten(get(root, "unwritten", (dict, type(None))))
        recorded = {self._file(name): item for name, item in get(root, "files", dict).items()}
        self.files = {path: get(item, "sha256", str) for path, item in recorded.items()}
        self.sizes = {path: self._get(item, "bytes", int) for path, item in recorded.items()}

    def _load(self) -> dict[str, Any]:
        try:
            with self.path.open("rb") as stream:
                root = json.loads(stream.read(MAX_MANIFEST))
        except OSError as error:
            raise no_manifest(self.path, error) from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"not valid JSON: {error}") from None
        schema = root.get("schema") if isinstance(root, dict) else None
        if schema != SCHEMA:
            raise other_schema(self.path, schema, SCHEMA)
        return dict(root)

    def _wrong(self, what: str) -> BadInput:
        return BadInput(what, file=self.path)

    def _get(self, holder: object, key: str, type_: type | tuple[type, ...]) -> Any:  # noqa: ANN401
        """``holder[key]``, which must be of ``type_``; a truth value is not a number."""
        value = holder.get(key) if isinstance(holder, dict) else None
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
            raise self._wrong(f"{key!r} is missing or wrong: {value!r:.80}")
        return value

    def _target(self, root: dict[str, Any]) -> dict[str, Any]:
        """The target; of a GPU also the processor that launches its kernels."""
        target: dict[str, Any] = self._get(root, "target", dict)
        for part in (target, self._get(target, "host", (dict, type(None))) or {}):
            for key in ("kind", "triple", "cpu"):
                self._get(part, key, (str, type(None)))
            features = self._get(part, "features", (list, type(None))) or ()
            if not all(isinstance(feature, str) for feature in features):
                raise self._wrong(f"'features' is {features!r:.80}")
        return target

    def _count(self, holder: object, key: str) -> int | None:
        """A number of things from 1 up, or None."""
        value: int | None = self._get(holder, key, OPTIONAL)
        if value is not None and not 0 < value <= MAX_SIZE:
            raise self._wrong(f"{key!r} is {value!r:.80}")
        return value

    def _file(self, name: str) -> Path:
        """The path of a file of the artifact, which must lie inside its folder."""
        path = self.folder / name
        try:
            inside, there = path.resolve().is_relative_to(self.folder), path.is_file()
        except (OSError, ValueError, RuntimeError) as error:  # what the system takes for no name
            raise self._wrong(f"{name!r:.80} is not a file: {error!s:.80}") from None
        if not inside:
            raise self._wrong(f"{name!r:.80} lies outside the folder")
        if not there:
            raise self._wrong(f"{name!r:.80} is missing")
        self.stamps.setdefault(path, stamp(path))
        return path

    def _weights_files(self, item: dict[str, Any]) -> tuple[Path, ...]:
        """The file of the weights, or that of each device."""
        if self.devices == 1:
            return (self._file(self._get(item, "file", str)),)
        names = self._get(item, "files", list)
        if len(names) != self.devices or not all(isinstance(name, str) for name in names):
            what = f"'files' of the weights is {names!r:.80}"
            raise self._wrong(f"{what}, for {self.devices} devices")
        return tuple(map(self._file, names))

    def _tensors(self, holder: object, key: str) -> list[dict[str, Any]]:
        """A list of tensors as JSON has them, no name twice."""
        items: list[dict[str, Any]] = self._get(holder, key, list)
        names = [self._get(item, "name", str) for item in items]
        if len(set(names)) != len(names):
            raise self._wrong(f"{key!r} names a tensor twice")
        return items

    def _facts(self, item: dict[str, Any], *numbers: str) -> tuple[Any, ...]:
        """Name, type and shape, then numbers that need not be there."""
        name, dtype, shape = (self._get(item, *key) for key in SPEC_KEYS)
        good = all(type(d) is str or (type(d) is int and 0 < d <= MAX_SIZE) for d in shape)
        if dtype not in DTYPES or not good or len(shape) > MAX_DIMS:
            raise self._wrong(f"tensor {name!r} is {dtype!r:.40}, {shape!r:.80}")
        return name, dtype, tuple(shape), *(self._get(item, key, OPTIONAL) for key in numbers)

    def _entry(self, item: object) -> EntrySpec:
        inputs, outputs = self._tensors(item, "inputs"), self._tensors(item, "outputs")
        return EntrySpec(
            function=self._get(item, "function", str),
            inputs=tuple(InputSpec(*self._facts(tensor, "default")) for tensor in inputs),
            outputs=tuple(ArraySpec(*self._facts(tensor)) for tensor in outputs),
            state=self._get(item, "state", bool),
            least=self._least(item),
        )

    def _least(self, item: object) -> dict[str, int]:
        """The least sizes of named dimensions."""
        least: dict[str, int] = self._get(item, "least", (dict, type(None))) or {}
        if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in least.values()):
            raise self._wrong(f"'least' is {least!r:.80}")
        return least

    def _stored(self, item: dict[str, Any]) -> WeightSpec:
        shape = self._get(item, "unpacked", (list, type(None)))
        if shape is not None and not all(type(d) is int and 0 < d <= MAX_SIZE for d in shape):
            raise self._wrong(f"'unpacked' of {item['name']!r} is {shape!r:.80}")
        unpacked = None if shape is None else tuple(shape)
        name, dtype, size = self._facts(item)
        encoding = self._get(item, "encoding", (str, type(None)))
        if encoding is not None and encoding not in RECORDS:
            raise self._wrong(f"'encoding' of {name!r} is {encoding!r:.80}")
        spec = WeightSpec(name, dtype, size, self._get(item, "offset", int), unpacked, encoding)
        if self._get(item, "nbytes", int) != spec.nbytes():
            raise self._wrong(f"{spec} has {spec.nbytes()} bytes, not {item['nbytes']!r:.40}")
        return spec

    def _table(self, item: object) -> TableSpec:
        weight, index = (self._get(item, key, str) for key in ("weight", "index"))
        return TableSpec(weight, index, self._get(item, "skipped", int))

    def _limit(self, name: str, item: object) -> Limit:
        pair: list[Any] = item if isinstance(item, list) and len(item) == 2 else [1, item]
        low, high = pair
        if not all(type(x) is int and abs(x) <= MAX_SIZE for x in pair) or low > high:
            raise self._wrong(f"the limit of {name!r} is {item!r:.80}")
        return (low, high) if isinstance(item, list) else high

    def _read_images(self, root: dict[str, Any]) -> None:
        """Read the steps of the preprocessing; None if there are none."""
        self.image: dict[str, Any] | None = self._get(root, "image", (dict, type(None)))
        # What an image becomes within a text.
        self.image_tokens: dict[str, Any] | None = self._get(
            root, "image_tokens", (dict, type(None))
        )

    def _read_classes(self, root: dict[str, Any]) -> None:
        """Read the names of classes, and what makes scores of logits; None where nothing says."""
        self.scores: str | None = self._get(root, "scores", (str, type(None)))
        self.labels: list[str] | None = self._get(root, "labels", (list, type(None)))
        if not all(isinstance(label, str) for label in self.labels or ()):
            raise self._wrong(f"'labels' is {self.labels!r:.80}")

    def _read_prompts(self, root: dict[str, Any]) -> None:
        """Read what is put before each text, by name, which usually is, and where padding is."""
        self.prompts: dict[str, str] = self._get(root, "prompts", (dict, type(None))) or {}
        self.prompt: str | None = self._get(root, "prompt", (str, type(None)))
        self.padding: str | None = self._get(root, "padding", (str, type(None)))
        if not all(isinstance(text, str) for text in self.prompts.values()):
            raise self._wrong(f"'prompts' is {self.prompts!r:.80}")
        if self.prompt is not None and self.prompt not in self.prompts:
            raise self._wrong(f"'prompt' is {self.prompt!r:.80}, none of the prompts")
        # By what a query and a document become a text; None where they are a pair of texts.
        self.pair_template = self._pairs(self._get(root, "pair_template", (dict, type(None))))
        # To what length texts are filled up; None where they are padded to the longest of a call.
        self.filled = self._filling(self._get(root, "filled", (dict, type(None))))
        if self.padding not in (None, BEHIND):
            raise self._wrong(f"'padding' is {self.padding!r:.80}")

    def _filling(self, item: dict[str, Any] | None) -> Filling | None:
        if item is None:
            return None
        length, token = self._count(item, "length"), self._get(item, "token", int)
        if length is None:
            raise self._wrong("'length' is missing")
        return Filling(length, token, self._get(item, "is_hidden", bool))

    def _pairs(self, item: dict[str, Any] | None) -> dict[str, Any] | None:
        if item is None:
            return None
        kinds = (("text", str), ("variables", dict), ("reply", bool))
        return {key: self._get(item, key, kind) for key, kind in kinds}

    def _writing(self, item: dict[str, Any] | None) -> WritingSpec | None:
        """The tokens around a text that is written behind another; None where nothing says."""
        try:
            return None if item is None else writing_spec(item)
        except ValueError as error:
            raise self._wrong(f"of 'writing', {error}") from None

    def _unwritten(self, item: dict[str, Any] | None) -> Unwritten:
        """The tokens that are left out of texts."""
        try:
            return unwritten(item or {})
        except ValueError as error:
            raise self._wrong(f"of 'unwritten', {error}") from None

    def _read_tokenizer(self, item: dict[str, Any]) -> None:
        self.tokenizer_file = self._file(self._get(item, "file", str))
        self.eos = tuple(self._get(item, "eos_token_ids", list))
        bos = self._get(item, "bos_token_id", OPTIONAL)
        self.bos = bos if self._get(item, "add_bos", bool) else None
        if not all(type(token) is int for token in self.eos):
            raise self._wrong(f"'eos_token_ids' is {self.eos!r:.80}")
        template = self._get(item, "chat_template", (str, type(None)))
        self.chat_template = None if template is None else self._file(template)
        self.special_tokens = self._get(item, "special_tokens", (dict, type(None))) or {}
        if not all(isinstance(text, str) for text in self.special_tokens.values()):
            raise self._wrong(f"'special_tokens' is {self.special_tokens!r:.80}")
