"""The request for one conversion, checked before any file is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from maxtool.conversion.edit_request import MetadataEdits, TensorEdits
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.object_storage import Destination
from maxtool.quantization.scheme import Scheme
from maxtool.recipe import Dialect
from maxtool.recipe.naming import check_name

# "hf" is a folder with config.json and tokenizer, "safetensors" the tensors alone.
Target = Literal["gguf", "hf", "safetensors", "npz"]
SUFFIXES: Mapping[str, Target] = {".gguf": "gguf", ".safetensors": "safetensors", ".npz": "npz"}
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
# Names by which something else would be expected than the folder that would be made.
FOREIGN = (
    *PICKLES,
    *(".onnx", ".npy", ".h5", ".pb", ".tflite", ".ggml"),
    *(".json", ".zip", ".tar", ".gz", ".txt"),
)
SHARDED = frozenset({"hf", "safetensors"})
DIALECT: Mapping[Target, Dialect] = {
    "gguf": "gguf",
    "hf": "hf",
    "safetensors": "hf",
    "npz": "hf",
}


@dataclass(frozen=True)
class Request:
    """One conversion.

    Attributes:
        source: A Hugging Face folder, a safetensors file or a GGUF file.
        output: Where the result appears.
        to: What it is; told from the name of ``output`` when not given.
        recipe: Name or path of the recipe; found from the source when not given.
        dtype: Element type of the matrices; the source's own when not given.
        quantize: How the matrices are quantized, if they are.
        force: Whether an existing output may be replaced.
        ignore: Configuration keys to pass over.
        name: What the model is called in the output; its own name when not given.
        shard_size: Bytes of tensors in a shard of safetensors at most; one file when not given.
        edits: What is done to the names and types of tensors.
        metadata: What is done to the metadata of the output.
        plain: Whether tensors are copied under their names, without a recipe.
        allow_nonfinite: Whether NaN, infinities and what becomes infinite are cast.
        verify: Whether the output is read back and compared.
        adapter: The folder of a LoRA adapter that is merged into the weights.
        sha256: Whether a list of the files' checksums is written.
        digests: Whether the report has these checksums, written or not.
        base: The base model of an adapter that is converted: its folder, or its GGUF file.
        split_max_size: Bytes of tensors in a split of GGUF at most; one file when not given.
        resume: Whether finished files are kept if it is interrupted, and used by the next run.
        in_shares: Whether its files are written by several processes, a share of them each.
        origin: What is known of where the source was brought from: its name, and more.
        jobs: How many threads read and convert; one per core when not given.
        destination: Where in an object store the result appears; then ``output`` is a path of the
            same name, at which its files are made one by one.
    """

    source: Path
    output: Path
    to: Target | None = None
    recipe: str | None = None
    dtype: DType | None = None
    quantize: Scheme | None = None
    force: bool = False
    ignore: frozenset[str] = frozenset()
    name: str | None = None
    shard_size: int | None = None
    split_max_size: int | None = None
    edits: TensorEdits = field(default_factory=TensorEdits)
    metadata: MetadataEdits = field(default_factory=MetadataEdits)
    plain: bool = False
    allow_nonfinite: bool = False
    verify: bool = False
    sha256: bool = False
    digests: bool = False
    adapter: Path | None = None
    base: Path | None = None
    resume: bool = False
    in_shares: bool = False
    origin: Mapping[str, object] = field(default_factory=dict)
    jobs: int | None = None
    destination: Destination | None = None

    @property
    def shown(self) -> str:
        """Return the output as it is printed."""
        return str(self.output) if self.destination is None else self.destination.shown

    @property
    def most_bytes(self) -> int | None:
        """Return the bytes of tensors that a file of the output may have, if there is a limit."""
        return self.shard_size if self.split_max_size is None else self.split_max_size

    @property
    def hashed(self) -> bool:
        """Return whether the report has the checksums of all files."""
        return self.sha256 or self.digests

    @property
    def target(self) -> Target:
        """Return the format of the result."""
        return self.to or SUFFIXES.get(self.output.suffix.lower(), "hf")

    def check(self) -> None:
        """Refuse what contradicts itself: the output's name, its format and its types."""
        suffix = self.output.suffix.lower()
        if self.to is None and suffix in FOREIGN:
            hint = "name it NAME.gguf, NAME.safetensors, NAME.npz, or a folder without an ending"
            why = ": PyTorch's files are pickles, which run code" if suffix in PICKLES else ""
            raise UsageError(f"no {suffix} files are written{why}", file=self.output, hint=hint)
        named = SUFFIXES.get(suffix)
        if self.to == "hf" and named is not None:
            what = f"--to hf writes a folder, and the output ends in {self.output.suffix}"
            raise UsageError(what, file=self.output)
        check_name(self.name)
        if self.name is not None and self.target in {"safetensors", "npz"}:
            what, hint = (
                f"a {self.target} file has no place for --name",
                "write a folder or a GGUF file",
            )
            raise UsageError(what, file=self.output, hint=hint)
        if self.dtype is not None and self.quantize is not None:
            raise UsageError("--dtype and --quantize exclude each other")
        if self.quantize is not None and self.target != "gguf":
            hint = "name the output something.gguf"
            raise UsageError("--quantize needs a GGUF output", file=self.output, hint=hint)
        self._check_sizes()
        self._check_plain()

    def check_adapter(self) -> None:
        """Refuse what does not go with an adapter as the source."""
        if self.target != "gguf":
            what = f"an adapter becomes a GGUF file, and the output is {self.target}"
            hint = "--merge-lora ADAPTER merges it into its base model, --no-recipe copies it"
            raise UsageError(what, file=self.output, hint=hint)
        refused = {
            "--quantize": self.quantize,
            "--merge-lora": self.adapter,
            "--split-max-size": self.split_max_size,
        }
        if asked := [option for option, value in refused.items() if value is not None]:
            raise UsageError(f"{asked[0]} is not for adapters", file=self.source)

    @property
    def needs_recipe(self) -> list[str]:
        """The options that were given and need a recipe."""
        needing = {
            "--recipe": self.recipe,
            "--quantize": self.quantize,
            "--name": self.name,
            "--ignore-config": self.ignore,
        }
        return [option for option, value in needing.items() if value]

    def _check_plain(self) -> None:
        """Refuse what a recipe is needed for where none is used."""
        if self.plain and (asked := self.needs_recipe):
            raise UsageError(f"--no-recipe and {asked[0]} exclude each other")

    def _check_sizes(self) -> None:
        """Refuse a limit of files that belongs to another format."""
        if self.shard_size is not None and self.target not in SHARDED:
            what = f"--shard-size is of safetensors, and the output is {self.target}"
            hint = "GGUF has --split-max-size" if self.target == "gguf" else None
            raise UsageError(what, file=self.output, hint=hint)
        if self.split_max_size is not None and self.target != "gguf":
            what = f"--split-max-size is of GGUF, and the output is {self.target}"
            raise UsageError(what, file=self.output, hint="safetensors have --shard-size")
        if self.in_shares and self.most_bytes is None:
            what = "the output is one file, and shares are of an output of several"
            hint = "--split-max-size SIZE cuts a GGUF file, --shard-size SIZE safetensors"
            raise UsageError(what, file=self.output, hint=hint)


def parse_target(text: str) -> Target:
    """The target that a user names; UsageError if there is none."""
    for target in DIALECT:
        if target == text.lower():
            return target
    raise UsageError(f"--to {text!r} is not one of {', '.join(DIALECT)}")
