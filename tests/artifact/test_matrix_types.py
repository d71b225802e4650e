"""The type of each matrix, as its source has it and as it is asked for: from headers alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool.artifact.matrix_types import MatrixType
from maxtool.artifact.weights import type_bytes
from maxtool.cli.app import app
from maxtool.compiler.quantized_layout import LAYOUTS
from maxtool.compiler.quantizers import compiled_quantizers
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.quantization import QuantizationEncoding, acceleration, codec, quantize
from maxtool.quantization.codec import ENCODABLE
from maxtool.quantization.scheme import FALLBACKS, Scheme
from tests.artifact.quantized_files import SAMPLE, planned, sample_gguf
from tests.schemes import pure

E = QuantizationEncoding
DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture
def gguf(tmp_path: Path) -> Any:
    """``gguf(encoding)``: the sample model as a quantized GGUF file."""
    return partial(sample_gguf, tmp_path)


def test_mixed_types_stay_as_they_are_in_the_file(gguf: Any, tmp_path: Path) -> None:
    build = planned(gguf(E.Q4_0), tmp_path / "out")
    assert build.contents.dtype is None
    assert build.notes == []
    kinds = {name: one.type_name for name, one in build.contents.storage.items()}
    assert kinds["layers.0.mlp.up.weight"] == "Q4_0"
    assert kinds["norm.weight"] == "float32"


def test_dtype_decodes(gguf: Any, tmp_path: Path) -> None:
    build = planned(gguf(E.Q4_0), tmp_path / "out", dtype=DType.float16)
    assert list(type_bytes(build.contents)) == ["float16"]
    assert build.contents.dtype is DType.float16


def test_gpus_get_float16_and_the_user_is_told(gguf: Any, tmp_path: Path) -> None:
    build = planned(gguf(E.Q4_0), tmp_path / "out", target="cuda:sm_80")
    assert list(type_bytes(build.contents)) == ["float16"]
    assert "quantized matrices are decoded to float16" in build.notes


@pytest.mark.parametrize("encoding", sorted(ENCODABLE, key=lambda one: one.name))
def test_quantizing_says_what_it_leaves_as_it_is(
    encoding: QuantizationEncoding, tmp_path: Path
) -> None:
    """Rows of 96 are three blocks of 32 and none of 256; three values have no kernel."""
    build = planned(SAMPLE, tmp_path / "out", quantize=pure(encoding))
    if encoding.elements_per_block == 32:
        assert list(type_bytes(build.contents)) == [encoding.name]
        assert build.notes == []
        return
    stored, nearest = encoding.name if encoding in LAYOUTS else "bfloat16", FALLBACKS[encoding].name
    ternary = encoding in (E.TQ1_0, E.TQ2_0)  # with an embedding of float16
    assert set(type_bytes(build.contents)) == {stored, nearest} | (
        {"float16"} if ternary else set()
    )
    blocks = f"rows are not whole {encoding.name} blocks of 256"
    left = f"{24 if ternary else 25} tensors are quantized to {nearest}, as {blocks}"
    decoded = f"4 matrices are decoded to bfloat16, as no kernel reads {encoding.name}"
    expected = [left] if encoding in LAYOUTS else [left, decoded]
    for note, beginning in zip(build.notes, expected, strict=True):
        assert note.startswith(beginning)
    data = build.contents.read("layers.0.mlp.down.weight")
    assert data.quantization_encoding is encoding


def test_quantizing_gives_the_bytes_that_converting_gives(gguf: Any, tmp_path: Path) -> None:
    ours = planned(SAMPLE, tmp_path / "out", quantize=pure(E.Q4_0)).contents
    theirs = planned(gguf(E.Q4_0), tmp_path / "out").contents
    assert ours.storage == theirs.storage
    for name in ("embed.weight", "layers.1.attn.q.weight"):
        np.testing.assert_array_equal(ours.read(name).data, theirs.read(name).data)


def test_what_is_quantized_is_quantized_again(gguf: Any, tmp_path: Path) -> None:
    source = gguf(E.Q8_0)
    with pytest.raises(UsageError, match="--allow-requantize"):
        planned(source, tmp_path / "out", quantize=pure(E.Q4_0))
    again = replace(pure(E.Q4_0), requantize=True)
    build = planned(source, tmp_path / "out", quantize=again)
    assert list(type_bytes(build.contents)) == ["Q4_0"]
    decoded = build.plan.read("layers.0.mlp.up.weight").astype(DType.float32).data
    actual = build.contents.read("layers.0.mlp.up.weight").data
    np.testing.assert_array_equal(actual, quantize(decoded, E.Q4_0))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"dtype": DType.float16}, "exclude each other"),
    "gpu": ({"target": "cuda:sm_80"}, "is for CPUs"),
    "original": ({"check": True, "against": "transformers"}, "cannot tell the rounding"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_quantizing_is_refused_where_it_makes_no_sense(name: str, tmp_path: Path) -> None:
    options, message = REFUSED[name]
    with pytest.raises(UsageError, match=message):
        planned(SAMPLE, tmp_path / "out", quantize=pure(E.Q8_0), **options)


def test_a_wrong_type_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    command = ["compile", str(SAMPLE), "-o", str(tmp_path / "out"), "--quantize", "Q8_K"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "Q5_K_S, Q6_K, Q8_0, TQ1_0" in done.stderr


def test_patterns_are_of_the_names_in_gguf(tmp_path: Path) -> None:
    overrides = (("blk.*.attn_v.weight", E.Q8_0), ("blk.1.*", DType.float16))
    scheme = replace(Scheme.named("Q4_0"), overrides=overrides)
    types = planned(SAMPLE, tmp_path / "out", quantize=scheme).types
    assert types["layers.0.attn.v.weight"].encoding is E.Q8_0
    assert types["layers.1.attn.v.weight"] == MatrixType(DType.float16)
    assert types["layers.2.attn.q.weight"].encoding is E.Q4_0
    assert types["embed.weight"].encoding is E.Q8_0  # rows of 96 are not whole Q6_K blocks


@pytest.mark.parametrize("name", ["tiny-distilbert", "tiny-qwen3-moe", "tiny-dynamic"])
def test_what_gguf_cannot_say_is_quantized_too(name: str, tmp_path: Path) -> None:
    """Names and shapes decide the types, not whether a file could be written."""
    build = planned(DATA / name, tmp_path / "out", quantize=Scheme.named("Q8_0"))
    assert build.contents.encodings or any("not whole Q8_0 blocks" in n for n in build.notes)


def test_the_bytes_of_compiled_quantizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantize every weight on its way by compiled code, which is there before it is asked for."""
    build = planned(SAMPLE, tmp_path / "out", quantize=pure(E.Q4_0))
    names = [name for name, chosen in build.types.items() if chosen.encoding is E.Q4_0]
    expected = [build.contents.read(name).data for name in names]
    monkeypatch.setattr(codec, "WORTHWHILE", {True: 1, False: 1})
    asked: list[bool] = []

    def quantizer(*what: object) -> object:
        found = compiled_quantizers.quantizer(*what)
        asked.append(found is not None)
        return found

    monkeypatch.setattr(acceleration, "_registered", [quantizer])
    with build.quick_reading():
        assert asked == [True]
        actual = [build.contents.read(name).data for name in names]
    assert asked == [True] * (1 + len(names))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_little_is_quantized_by_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "_registered", [lambda *_: pytest.fail("it was asked for")])
    build = planned(SAMPLE, tmp_path / "out", quantize=pure(E.Q4_0))
    with build.quick_reading():
        build.contents.read(next(name for name, chosen in build.types.items() if chosen.encoding))
