"""Quantizers give the bytes of ggml's, recorded for all samples, and of llama.cpp's files."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from maxtool.cli.app import app
from maxtool.errors import MisshapenWeight, ModelMismatch
from maxtool.quantization import QuantizationEncoding, quantize
from maxtool.quantization.codec import ENCODABLE
from tests.quantization import recorded
from tests.quantization.block_samples import ROW, importances, samples
from tests.quantization.ggml import Ggml, installed

E = QuantizationEncoding
DIGESTS = recorded.read()
WRITTEN = sorted(DIGESTS)
# Encodings whose encoders search for scales, and so take notice of importance.
SEARCHING = sorted(set(WRITTEN) - {"Q8_0", "TQ1_0", "TQ2_0", "MXFP4"})
FIRESIDE = Path(__file__).parents[1] / "data" / "fireside-256"


def test_everything_that_is_written_was_recorded() -> None:
    assert {encoding.name for encoding in ENCODABLE} == set(DIGESTS)
    for by_importance in DIGESTS.values():
        assert by_importance.keys() == importances().keys()
        for digests in by_importance.values():
            assert digests.keys() == samples().keys()


@pytest.mark.parametrize("importance", importances())
@pytest.mark.parametrize("name", WRITTEN)
def test_blocks_have_the_bits_of_ggml(name: str, importance: str) -> None:
    stacked = np.concatenate(list(samples().values()))
    packed = quantize(stacked, E[name], importance=importances()[importance])
    parts = np.split(packed, len(samples()))
    made = {sample: recorded.digest(part) for sample, part in zip(samples(), parts, strict=True)}
    assert made == DIGESTS[name][importance]


def test_scales_of_nearly_equal_groups_may_be_negative() -> None:
    """ggml stores such a scale's level, a byte near 255, over those of other groups."""
    with np.load(recorded.FILE.with_name("negative_scales.npz")) as arrays:
        for values, importance, expected in zip(*map(arrays.get, arrays.files), strict=True):
            packed = quantize(values, E.Q4_K, importance=importance)
            np.testing.assert_array_equal(packed, expected)


@pytest.fixture(scope="module")
def fireside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The tensors of ``fireside-256`` as a GGUF file has them."""
    path = tmp_path_factory.mktemp("fireside") / "float32.gguf"
    app(["convert", str(FIRESIDE), "-o", str(path), "--dtype", "float32"], standalone_mode=False)
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("path", sorted(FIRESIDE.glob("*.gguf")), ids=lambda path: path.stem)
def test_matrices_have_the_bits_of_llama_cpps_files(
    path: Path, fireside: dict[str, np.ndarray]
) -> None:
    compared = 0
    for tensor in gguf.GGUFReader(path).tensors:
        encoding = E.__members__.get(tensor.tensor_type.name)
        if encoding is not None:
            packed = quantize(fireside[tensor.name], encoding)
            np.testing.assert_array_equal(packed, tensor.data, err_msg=tensor.name)
            compared += 1
    assert compared == 15


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRITTEN)
def test_ggml_here_gives_the_same_bytes(name: str, seed: int) -> None:
    library = installed()
    if library is None:
        pytest.skip("needs llama-cpp-python")
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((64, ROW), np.float32)
    rows *= np.exp2(generator.integers(-20, 3, rows.shape)).astype(np.float32)
    weights = generator.chisquare(1, ROW).astype(np.float32)
    for importance in (None, weights):
        expected = Ggml(library).quantize(rows, E[name], importance)
        np.testing.assert_array_equal(quantize(rows, E[name], importance=importance), expected)


@pytest.mark.parametrize("name", SEARCHING)
def test_importance_of_ones_is_not_the_absence_of_importance(name: str) -> None:
    rows = samples()["bell"]
    weighted = quantize(rows, E[name], importance=np.ones(ROW))
    assert (weighted != quantize(rows, E[name])).any()


@pytest.mark.parametrize("name", SEARCHING)
def test_each_matrix_has_its_importance(name: str) -> None:
    stacked = np.stack([samples()["bell"], samples()["outliers"]])
    weights = [importances()["any"], importances()["spikes"]]
    both = quantize(stacked, E[name], importance=np.stack(weights))
    for packed, matrix, importance in zip(both, stacked, weights, strict=True):
        np.testing.assert_array_equal(packed, quantize(matrix, E[name], importance=importance))


@pytest.mark.parametrize("name", SEARCHING)
def test_values_whose_sums_overflow_are_refused(name: str) -> None:
    """Groups whose scale is not a number are zeros in ggml's blocks."""
    with pytest.raises(ModelMismatch, match="too large"):
        quantize(samples()["bell"] * np.float32(2**100), E[name])


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"])
def test_importance_whose_sums_overflow_is_refused(name: str) -> None:
    with pytest.raises(ModelMismatch, match="too large"):
        quantize(samples()["large"], E[name], importance=np.full(ROW, 2.0**120))


@pytest.mark.parametrize("shape", [(3,), (2, ROW), (2, 3, ROW), ()])
def test_importance_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    rows = samples()["bell"]
    with pytest.raises(MisshapenWeight, match="does not fit the shape"):
        quantize(rows, E.Q4_K, importance=np.ones(shape))


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_importance_that_is_no_weight_is_refused(bad: float) -> None:
    weights = np.ones(ROW)
    weights[7] = bad
    with pytest.raises(ModelMismatch, match="importance is negative or not finite") as caught:
        quantize(samples()["bell"], E.Q4_K, importance=weights, tensor="a.weight")
    assert caught.value.tensor == "a.weight"
