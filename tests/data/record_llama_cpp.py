"""Quantize ``fireside-256`` with llama.cpp, and record what llama.cpp computes with each type.

Needs llama-cpp-python 0.3.36, which is built from source, and maxtool.

    python tests/data/record_llama_cpp.py

``NAME.gguf`` in the folder are what llama.cpp makes of the types of ``STORED``. The types of
``WRITTEN`` are written by maxtool, which makes the same files again whenever a test asks for them.
``llama_cpp.json`` has for each its tensors by encoding, how well llama.cpp predicts a held-out text
with it, by the formulas of ``maxtool compare`` (the reference is llama.cpp with the bfloat16 file),
and the relative error of its logits beside float64. ``llama_cpp.npz`` has its logits behind the
last tokens of a prompt. llama.cpp runs as it is by default: activations are quantized for its
products, keys and values kept in float16.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

HERE = Path(__file__).parent
FOLDER = HERE / "fireside-256"
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "samples")]

from stories import stories  # noqa: E402

from maxtool.cli.app import app  # noqa: E402
from maxtool.evaluation.model_summary import Summary, summarize  # noqa: E402
from maxtool.evaluation.token_scores import TokenScores, joined, score  # noqa: E402
from maxtool.evaluation.windows import Windows, cut  # noqa: E402
from maxtool.weights.checkpoint import open_checkpoint  # noqa: E402
from tests.parity.traced import TracedModel  # noqa: E402

# Another seed than those of samples/train.py.
TEXT = {"seed": 20261123, "stories": 40, "context": 512}
PROMPT, KEPT = 32, 3  # tokens, and those whose logits are recorded
IQ4_NL = 20  # of ggml.h's enum ggml_type

# By the name of llama.cpp's llama-quantize: what it takes beside the type. Together they have every
# K and IQ4 encoding. The tied embedding is Q6_K unless another type is asked for.
STORED: dict[str, dict[str, int]] = {
    "Q2_K": {},
    "Q3_K_M": {},
    "Q4_K_M": {},
    "IQ4_XS": {"token_embedding_type": IQ4_NL, "output_tensor_type": IQ4_NL},
}
WRITTEN = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
REFERENCE = "BF16"


def text() -> str:
    """Stories that the model was not trained on."""
    return "\n\n".join(stories(TEXT["seed"], TEXT["stories"]))


def maxtool(*arguments: object) -> None:
    """Run a command of maxtool."""
    app([*map(str, arguments), "--quiet"], standalone_mode=False)


def quantize(source: Path, target: Path, name: str, options: dict[str, int]) -> None:
    """Do what llama-quantize does, on one thread and without an importance matrix."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread = 1
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    for key, value in options.items():
        setattr(params, key, value)
    paths = (str(path).encode() for path in (source, target))
    if llama_cpp.llama_model_quantize(*paths, ctypes.byref(params)):
        raise RuntimeError(f"llama.cpp does not quantize to {name}")


def files(scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file of each type, the reference first."""
    reference = scratch / f"{REFERENCE}.gguf"
    maxtool("convert", FOLDER, "-o", reference, "--dtype", "bfloat16")
    yield REFERENCE, reference
    for name in WRITTEN:
        maxtool("convert", FOLDER, "-o", scratch / f"{name}.gguf", "--quantize", name, "--pure")
        yield name, scratch / f"{name}.gguf"
    for name, options in STORED.items():
        quantize(reference, FOLDER / f"{name}.gguf", name, options)
        yield name, FOLDER / f"{name}.gguf"


class Recorder:
    """llama.cpp with one file after the other; the first is the reference of all."""

    def __init__(self) -> None:
        self.figures: dict[str, dict[str, Any]] = {}
        self.arrays: dict[str, NDArray[Any]] = {}
        self._reference: list[NDArray[np.float32]] = []

    def record(self, name: str, path: Path) -> Windows:
        """Record what llama.cpp computes with a file; the windows of the text."""
        model = llama_cpp.Llama(
            str(path), n_ctx=TEXT["context"], logits_all=True, n_threads=1, verbose=False
        )
        ids = np.array(model.tokenize(text().encode(), special=False), np.int64)
        windows = cut(ids, TEXT["context"], model.token_bos())
        rows = [windows.scored(logits(model, window)) for window in windows.ids]
        self._reference = self._reference or rows
        summary = summarize(*(self._scores(side, windows) for side in (rows, self._reference)))
        facts = {"encodings": encodings(path), "bytes": path.stat().st_size}
        self.figures[name] = {**facts, **described(summary), "error": error(path, windows, rows)}
        self.arrays["input_ids"] = ids[:PROMPT]
        self.arrays[name] = logits(model, ids[:PROMPT])[-KEPT:]
        return windows

    def _scores(self, rows: list[NDArray[np.float32]], windows: Windows) -> TokenScores:
        triples = zip(rows, self._reference, windows.tokens, strict=True)
        return joined([score(*triple) for triple in triples])


def logits(model: llama_cpp.Llama, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """llama.cpp's logits behind each token."""
    model.reset()
    model.eval(ids.tolist())
    return np.array(model.scores[: len(ids)])


def error(path: Path, windows: Windows, rows: list[NDArray[np.float32]]) -> float:
    """The relative error of logits, beside float64 with the same decoded weights."""
    model = TracedModel(open_checkpoint(path))
    exact = np.stack([windows.scored(model.forward(ids[np.newaxis])[0]) for ids in windows.ids])
    return float(np.linalg.norm(np.stack(rows) - exact) / np.linalg.norm(exact))


def encodings(path: Path) -> dict[str, int]:
    """The number of tensors of each encoding."""
    return dict(Counter(tensor.tensor_type.name for tensor in GGUFReader(path).tensors))


def described(summary: Summary) -> dict[str, Any]:
    """A summary as JSON has it: each estimate as value and error, percentiles by their names."""
    percentiles = {f"{p:g}": value for p, value in summary.percentiles.items()}
    return {**asdict(summary), "percentiles": percentiles}


def main() -> None:
    """Write the files, and what was recorded."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in files(Path(scratch)):
            windows = recorder.record(name, path)
            print(name, recorder.figures[name], file=sys.stderr)
    source = {"llama-cpp-python": llama_cpp.__version__, "text": TEXT}
    counts = {"windows": windows.count, "scored_tokens": windows.tokens.size}
    content = {**source, **counts, "files": recorder.figures}
    (FOLDER / "llama_cpp.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / "llama_cpp.npz", **recorder.arrays)


if __name__ == "__main__":
    main()
