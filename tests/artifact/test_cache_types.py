"""Caches of each type: what is computed with them, what is told of them, and what is refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.architectures import CacheLayout, Decoder, DecoderConfig
from maxtool.artifact.cache_type import check_positions
from maxtool.artifact.manifest import describe
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.errors import CompilationFailed, UsageError
from maxtool.quantization import QuantizationEncoding
from maxtool.quantization.scheme import Scheme
from maxtool.runtime import loader
from tests.architectures.decoders import CONFIG
from tests.artifact.measure import BOUND, Compile, error, greedy, logits, recorded
from tests.effort import sampled, thinned
from tests.parity.yardstick import FOLDER
from tests.variants.rows import Files, rows

# What rounding once may change a number by, relatively.
ROUNDOFF = {DType.float32: 2.0**-24, DType.float16: 2.0**-11, DType.bfloat16: 2.0**-8}


# It has grouped heads, windows and soft caps; kernels are chosen by the type.
USUAL = [("tiny-gemma2", dtype) for dtype in ROUNDOFF]
OTHERS = ("tiny-llama", "tiny-gemma3", "tiny-qwen3", "tiny-gpt2")
CACHES = [*USUAL, *((name, dtype) for name in OTHERS for dtype in ROUNDOFF)]


@pytest.mark.sampled
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("name", "kv_dtype"), sampled(thinned(CACHES, *USUAL), *USUAL))
def test_what_transformers_computes(
    compiled: Compile, data: Path, name: str, kv_dtype: DType
) -> None:
    """Grouped heads, windows, soft caps, norms of keys; recorded by transformers in float32.

    Each layer rounds keys and values, and passes on what the ones before it were off by.
    """
    folder = compiled(data / name, kv_dtype=kv_dtype)
    expected = recorded(data / name)
    layers = json.loads((folder / "manifest.json").read_text())["n_layers"]
    allowed = BOUND + 2 * layers * ROUNDOFF[kv_dtype]
    assert error(logits(folder, expected["input_ids"]), expected["logits"]) <= allowed
    tokens = expected["greedy_tokens"][0].tolist()
    assert greedy(folder, expected["greedy_prompt"], len(tokens)) == tokens


@pytest.mark.long
def test_a_check_allows_what_the_cache_loses(sample: Path, tmp_path: Path) -> None:
    options = {"check": True, "kv_dtype": DType.float16}
    build = artifact.prepare(artifact.Request(sample, tmp_path / "out", **options))
    report = artifact.make(build)
    assert report.check is not None
    assert report.check.worst is not None
    assert 1e-5 < report.check.worst.relative_error < ROUNDOFF[DType.float16]
    assert report.check.worst.rtol == build.plan.recipe.check["float16"].rtol
    state = json.loads((tmp_path / "out" / "manifest.json").read_text())["state"]
    assert {spec["dtype"] for spec in state} == {"float16"}
    text = loader.load(tmp_path / "out").text_memory().state.arrays
    assert sum(array.nbytes for array in text) == build.contents.state_bytes


@pytest.mark.parametrize(
    ("target", "dtype", "asked", "expected"),
    [
        ("cpu:x86-64-v3", None, None, DType.float32),
        ("cpu:x86-64-v3", DType.bfloat16, None, DType.float16),
        ("cpu:x86-64-v3", DType.bfloat16, DType.float32, DType.float32),
        ("cpu:x86-64-v3", None, DType.bfloat16, DType.bfloat16),
        ("cpu:neoverse-n1", DType.float16, None, DType.float16),
        ("cpu:x86-64", DType.float16, None, DType.float32),
        ("cpu:x86-64", DType.float16, DType.float16, DType.float16),
    ],
)
def test_the_type_of_the_cache(
    sample: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    dtype: DType | None,
    asked: DType | None,
    expected: DType,
) -> None:
    monkeypatch.setattr("maxtool.artifact.machine_code.require_tools", lambda _: None)
    request = artifact.Request(
        sample, tmp_path / "out", target=target, dtype=dtype, kv_dtype=asked, context=100
    )
    build = artifact.prepare(request)
    assert build.kv_dtype is expected
    # Keys and values of 4 layers with 2 heads of 16 each.
    assert build.contents.state_bytes == 2 * 4 * 2 * 16 * 100 * expected.size_in_bytes


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 3])
def test_a_check_allows_what_blocks_lose(tmp_path: Path, batch: int) -> None:
    """Compare where nothing else rounds: what is allowed was measured, and is not much more."""
    request = artifact.Request(
        FOLDER,
        tmp_path / "out",
        dtype=DType.float32,
        kv_dtype=QuantizationEncoding.Q8_0,
        context=100,
        batch=batch,
        check=True,
    )
    build = artifact.prepare(request)
    report = artifact.make(build)
    assert report.check is not None
    assert report.check.worst is not None
    found, allowed = report.check.worst.relative_error, report.check.worst.rtol
    assert 2.0**-12 < found < allowed < 2.0**-5
    assert build.kv_dtype is QuantizationEncoding.Q8_0
    # Keys and values of 2 layers with 2 heads of 64 each, 34 bytes for 32 of them.
    assert build.contents.state_bytes == 2 * 2 * 2 * 64 * 100 * batch * 34 // 32
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [spec["dtype"] for spec in manifest["state"][:4]] == [
        *("int32", "float16"),  # keys, four elements each
        *("int8", "float16"),
    ]
    assert [spec["positions"] for spec in manifest["state"][:4]] == [3, 3, 2, 2]


@pytest.mark.long
def test_parts_of_a_text_with_a_cache_in_blocks(compiled: Compile) -> None:
    """Rows of any number, and steps of joined kernels, write and read the same."""
    options = {"dtype": DType.float32, "context": 100}
    folder = compiled(FOLDER, kv_dtype=QuantizationEncoding.Q8_0, **options)
    ids = np.random.default_rng(0).integers(0, 1000, (1, 90))
    whole = logits(folder, ids)[0]
    model = loader.load(folder)
    for parts in ([90], [37, 1, 1, 20, *[1] * 31], [1] * 90):
        state, at = model.new_state(batch=1), 0
        for length in parts:
            entry = "decode" if length == 1 else "prefill"
            arrays = {"input_ids": ids[:, at : at + length], "position": np.array([at], "i4")}
            read = model.run(entry, arrays, state)["logits"][0]
            at += length
            # A step of eight bits here and there, as sums are in another order.
            assert error(read, whole[at - 1]) < 1 / 254, (parts, at)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tiny-llama", {}, "Q8_0 is in blocks of 32 elements, and heads have 12"),
        ("fireside-256", {"target": "cuda:sm_90"}, "Q8_0: on GPUs the cache is bfloat16"),
        ("fireside-256", {"check": True, "against": "transformers"}, "cannot tell the rounding"),
        ("fireside-256", {"kv_dtype": QuantizationEncoding.Q4_0}, "only blocks of caches are Q8_0"),
    ],
)
def test_where_there_are_no_blocks(
    data: Path, tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    asked = {"kv_dtype": QuantizationEncoding.Q8_0, **options}
    with pytest.raises(UsageError, match=message):
        artifact.prepare(artifact.Request(data / name, tmp_path / "out", **asked))


def test_positions_of_linear_biases_are_not_rounded(tmp_path: Path) -> None:
    """Elements of heads are what they are."""
    Files(tmp_path).checkpoint(next(rows("bloom")))
    asked = {"kv_dtype": QuantizationEncoding.Q8_0}
    with pytest.raises(UsageError, match="would round the positions"):
        artifact.prepare(artifact.Request(tmp_path / "0" / "bloom", tmp_path / "out", **asked))


@pytest.mark.parametrize(
    ("dim", "dtype", "is_rounded"),
    [
        (14, DType.float16, True),
        (14, DType.float32, False),
        (16, DType.bfloat16, False),
        (128, DType.float16, False),
    ],
)
def test_slopes_of_linear_biases_are_not_rounded(dim: int, dtype: DType, is_rounded: bool) -> None:
    """Heads of 14 elements have 16 with them, of which tensor cores take some at a time."""
    config = DecoderConfig(**CONFIG | {"position": "alibi", "head_dim": dim})
    decoder = Decoder(config, form=CacheLayout(dtype, transposed=False))
    says = "tensor cores would round the linear biases"
    with pytest.raises(CompilationFailed, match=says) if is_rounded else nullcontext():
        check_positions(decoder, parse_target("cuda:sm_90"))


@pytest.mark.parametrize("kv_dtype", [None, DType.float32])
def test_the_cache_of_quantized_matrices(
    sample: Path, tmp_path: Path, kv_dtype: DType | None
) -> None:
    request = artifact.Request(
        sample,
        tmp_path / "out",
        quantize=Scheme.named("Q8_0"),
        kv_dtype=kv_dtype,
        target="cpu:x86-64-v3",
    )
    assert artifact.prepare(request).kv_dtype is (kv_dtype or DType.float16)


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("tiny-bert", "cpu", "--kv-dtype is for models that write texts, not bert"),
        ("tiny-llama", "cuda:sm_90", "--kv-dtype float16: on GPUs the cache is float32"),
    ],
)
def test_where_the_type_is_not_to_be_chosen(
    data: Path, tmp_path: Path, name: str, target: str, message: str
) -> None:
    request = artifact.Request(data / name, tmp_path / "out", target=target, kv_dtype=DType.float16)
    with pytest.raises(UsageError, match=message):
        artifact.prepare(request)


@pytest.mark.parametrize("kv_dtype", [DType.float16, QuantizationEncoding.Q8_0])
def test_the_axis_of_positions_whatever_its_size(
    tmp_path: Path, kv_dtype: DType | QuantizationEncoding
) -> None:
    """A context may be as long as a head is wide; the axis is the one that another changes."""

    def described(context: int) -> list[dict[str, Any]]:
        options: dict[str, Any] = {"context": context, "kv_dtype": kv_dtype, "batch": 2}
        request = artifact.Request(FOLDER, tmp_path / "out", **options)
        state: Any = describe(artifact.prepare(request).contents, {})["state"]
        return list(state)

    wide = 64  # a head of this model
    for at, other in zip(described(wide), described(wide + 1), strict=True):
        (axis,) = [axis for axis in range(4) if at["shape"][axis] != other["shape"][axis]]
        assert at["positions"] == other["positions"] == axis
