"""Accuracy of quantized weights beside llama.cpp's, type by type, on a small trained model.

llama.cpp's own tool quantizes the model (maxtool to MXFP4), and both sides compute the logits of a
text, new to it, from the same file. For each type: how far the logits of either are from float64
with the weights of that file as the gguf package decodes them, and how far both are from the model
in float32: Kullback-Leibler divergence, and the share of tokens whose likeliest successor is the
same.

    python benchmarks/accuracy.py --llama-cpp BUILD
    python benchmarks/accuracy.py --llama-cpp BUILD --types Q4_0,Q6_K --target cpu:x86-64-v3

``BUILD`` is the build folder of llama.cpp, of static libraries, with ``bin/llama-quantize``; its
logits come from ``llama_logits.cpp``, which is compiled with ``c++``. README.md says how to build
the rest. Types that need an importance matrix get one of the same text, by ``maxtool imatrix``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "samples")]

from stories import stories  # type: ignore[import-not-found]  # noqa: E402

from maxtool.evaluation.language_model import LanguageModel  # noqa: E402
from maxtool.evaluation.model_summary import Summary, summarize  # noqa: E402
from maxtool.evaluation.token_scores import joined, score  # noqa: E402
from maxtool.evaluation.windows import Windows, cut  # noqa: E402
from maxtool.quantization.codec import dequantize  # noqa: E402
from maxtool.weights.checkpoint import open_checkpoint  # noqa: E402
from tests.parity.traced import TracedModel  # noqa: E402

MODEL = ROOT / "tests" / "data" / "fireside-256"
SEED, STORIES, CONTEXT = 20261123, 40, 512  # another seed than that of the training
CODE = Path(__file__).with_name("llama_logits.cpp")
STATIC = [f"ggml/src/libggml{part}.a" for part in ("", "-cpu", "-base")]
# Names of llama-quantize.
TYPES = (
    *("F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S"),
    *("Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S"),
    *("IQ3_XS", "IQ3_XXS", "Q2_K", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M"),
    *("IQ1_S", "TQ2_0", "TQ1_0", "Q2_0", "Q1_0", "MXFP4"),
)
OURS = {"MXFP4"}  # which llama-quantize writes for experts alone
MATRIX = {"IQ3_XS", "IQ3_XXS", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"}

Array = np.ndarray[Any, Any]


def main() -> None:
    """Measure every type, and print a table."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="maxtool-benchmark-") as scratch:
        bench = Bench(arguments.llama_cpp, arguments.model, arguments.target, Path(scratch))
        print("| type | error: maxtool, llama.cpp (ratio) | divergence | same top |")
        print("| --- | --- | --- | --- |")
        for name in arguments.types:
            print(row(name, *bench.measure(name)), flush=True)


@dataclass(frozen=True)
class Measured:
    """Figures of one side: the relative error of its logits, and a summary beside float32."""

    error: float
    summary: Summary


def row(name: str, ours: Measured, theirs: Measured) -> str:
    """A line of the table: what is ours first."""
    sides = (ours, theirs)
    errors = ", ".join(f"{side.error:.2e}" for side in sides)
    divergences = ", ".join(f"{side.summary.divergence.value:.3g}" for side in sides)
    tops = ", ".join(f"{side.summary.same_top.value:.2%}" for side in sides)
    return f"| {name} | {errors} ({ours.error / theirs.error:.2f}) | {divergences} | {tops} |"


class Bench:
    """Both sides, on the files of one model."""

    def __init__(self, llama_cpp: Path, model: Path, target: str, work: Path) -> None:
        self._build, self._target, self._work = llama_cpp, target, work
        self._source = work / "F32.gguf"
        tool("convert", model, "-o", self._source, "--dtype", "float32")
        self._text = "\n\n".join(stories(SEED, STORIES))
        tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
        ids = np.array(tokenizer.encode(self._text).ids, np.int64)
        self._windows: Windows = cut(ids, CONTEXT, int(ids[0]))
        self._original = self._scored(exact(self._source, self._windows))

    def measure(self, name: str) -> tuple[Measured, Measured]:
        """Ours and theirs with one type."""
        file = self._work / f"{name}.gguf"
        self._quantize(file, name)
        check_decoded(file)
        true = self._scored(exact(file, self._windows))
        ours, theirs = self._scored(self._ours(file)), self._scored(self._theirs(file))
        file.unlink()
        return self._measured(ours, true), self._measured(theirs, true)

    def _quantize(self, file: Path, name: str) -> None:
        if name in OURS:
            tool("convert", self._source, "-o", file, "--quantize", name)
            return
        matrix = ["--imatrix", self._matrix] if name in MATRIX else []
        done(self._build / "bin" / "llama-quantize", *matrix, self._source, file, name)

    def _measured(self, logits: Array, true: Array) -> Measured:
        triples = zip(logits, self._original, self._windows.tokens, strict=True)
        scores = joined([score(*triple) for triple in triples])
        return Measured(relative(logits, true), summarize(scores, scores))

    def _scored(self, windows: Iterator[Array]) -> Array:
        return np.stack([self._windows.scored(logits) for logits in windows])

    def _ours(self, file: Path) -> Iterator[Array]:
        folder = self._work / "artifact"
        tool("compile", file, "-o", folder, "--target", self._target, "--force")
        model = LanguageModel(folder)
        return (model.logits(ids) for ids in self._windows.ids)

    def _theirs(self, file: Path) -> Iterator[Array]:
        texts, logits = self._work / "ids", self._work / "logits"
        self._windows.ids.astype(np.int32).tofile(texts)
        done(self._program, file, self._windows.length, texts, logits)
        yield from np.fromfile(logits, np.float32).reshape(*self._windows.ids.shape, -1)

    @cached_property
    def _program(self) -> Path:
        """The program that writes llama.cpp's logits."""
        build, program = self._build, self._work / "llama_logits"
        includes = [f"-I{build.parent / path}" for path in ("include", "ggml/include")]
        libraries = [build / path for path in ("src/libllama.a", *STATIC)]
        command = ["c++", "-std=c++17", "-O1", *includes, CODE, "-o", program, *libraries]
        done(*command, "-lgomp", "-lpthread", "-ldl")
        return program

    @cached_property
    def _matrix(self) -> Path:
        """An importance matrix of the text."""
        folder, text, matrix = (self._work / name for name in ("float32", "text", "imatrix.gguf"))
        text.write_text(self._text, encoding="utf-8")
        tool("compile", self._source, "-o", folder)
        tool("imatrix", folder, text, "-o", matrix)
        return matrix


def exact(file: Path, windows: Windows) -> Iterator[Array]:
    """Logits in float64."""
    model = TracedModel(open_checkpoint(file))
    return (model.forward(ids[np.newaxis])[0] for ids in windows.ids)


def relative(logits: Array, true: Array) -> float:
    """The relative error of logits."""
    return float(np.linalg.norm(logits - true) / np.linalg.norm(true))


def check_decoded(file: Path) -> None:
    """End the benchmark if weights are decoded otherwise than the gguf package decodes them."""
    checkpoint = open_checkpoint(file)
    try:
        for tensor in gguf.GGUFReader(file).tensors:
            weight = checkpoint.read(tensor.name)
            if (encoding := weight.quantization_encoding) is not None:
                ours = dequantize(weight.data, encoding, tensor=tensor.name)
                theirs = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(ours.shape)
                if not np.array_equal(ours, theirs):
                    raise SystemExit(f"{file.name}: gguf decodes {tensor.name} otherwise")
    except (ValueError, NotImplementedError) as error:  # a type of a later release
        print(f"{file.name} is decoded by maxtool alone: gguf says {error}", file=sys.stderr)


def tool(*words: object) -> None:
    """Run a command of maxtool."""
    done(sys.executable, "-m", "maxtool", *words, "--quiet")


def done(*words: object) -> None:
    """Run a program; the benchmark ends where it fails."""
    command = [str(word) for word in words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(ended.stdout + ended.stderr)[-2000:]}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama-cpp", type=Path, required=True, help="its build folder")
    parser.add_argument("--model", type=Path, default=MODEL, help="a folder of Hugging Face's form")
    parser.add_argument("--types", default=",".join(TYPES), help="separated by commas")
    parser.add_argument("--target", default="cpu", help="as for maxtool compile")
    arguments = parser.parse_args()
    arguments.types = arguments.types.split(",")
    return arguments


if __name__ == "__main__":
    main()
