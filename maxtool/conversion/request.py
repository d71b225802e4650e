"""The request for one conversion, checked before any file is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.quantization.scheme import Scheme
from maxtool.recipe import Dialect
from maxtool.recipe.naming import check_name

# "hf" is a folder with config.json and tokenizer, "safetensors" the tensors alone.
Target = Literal["gguf", "hf", "safetensors"]
SUFFIXES: Mapping[str, Target] = {".gguf": "gguf", ".safetensors": "safetensors"}
# Names by which something else would be expected than the folder that would be made.
FOREIGN = (
    *(".onnx", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".npy", ".h5", ".pb", ".tflite", ".ggml"),
    *(".json", ".zip", ".tar", ".gz", ".txt"),
)
DIALECT: Mapping[Target, Dialect] = {"gguf": "gguf", "hf": "hf", "safetensors": "hf"}


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

    @property
    def target(self) -> Target:
        """Return the format of the result."""
        return self.to or SUFFIXES.get(self.output.suffix.lower(), "hf")

    def check(self) -> None:
        """Refuse what contradicts itself: the output's name, its format and its types."""
        suffix = self.output.suffix.lower()
        if self.to is None and suffix in FOREIGN:
            hint = "name it NAME.gguf or NAME.safetensors, or a folder without such an ending"
            raise UsageError(f"no {suffix} files are written", file=self.output, hint=hint)
        named = SUFFIXES.get(suffix)
        if self.to == "hf" and named is not None:
            what = f"--to hf writes a folder, and the output ends in {self.output.suffix}"
            raise UsageError(what, file=self.output)
        check_name(self.name)
        if self.name is not None and self.target == "safetensors":
            what, hint = (
                "a safetensors file has no place for --name",
                "write a folder or a GGUF file",
            )
            raise UsageError(what, file=self.output, hint=hint)
        if self.dtype is not None and self.quantize is not None:
            raise UsageError("--dtype and --quantize exclude each other")
        if self.quantize is not None and self.target != "gguf":
            hint = "name the output something.gguf"
            raise UsageError("--quantize needs a GGUF output", file=self.output, hint=hint)


def parse_target(text: str) -> Target:
    """The target that a user names; UsageError if there is none."""
    for target in DIALECT:
        if target == text.lower():
            return target
    raise UsageError(f"--to {text!r} is not one of {', '.join(DIALECT)}")
