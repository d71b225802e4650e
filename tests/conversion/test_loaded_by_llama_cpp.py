"""Files of every type and mix, loaded by llama.cpp: the logits are those of its own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.quantization.mixes import MIXES
from maxtool.quantization.scheme import Scheme

pytestmark = [pytest.mark.peers, pytest.mark.slow]
llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python")

MODEL = Path(__file__).parents[1] / "data" / "fireside-256"
IDS = [0, *range(5, 900, 29)]
ALONE = [mix for mix in MIXES.values() if not mix.needs_importance]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plain") / "model.gguf"
    convert(prepare(Request(MODEL, file, dtype=DType.float32)))
    return file


def logits(file: Path) -> NDArray[Any]:
    model = llama_cpp.Llama(str(file), n_ctx=len(IDS), logits_all=True, n_threads=1, verbose=False)
    model.eval(IDS)
    return np.array(model.scores[: len(IDS)])


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16, DType.bfloat16])
def test_plain_types(plain: Path, tmp_path: Path, dtype: DType) -> None:
    convert(prepare(Request(MODEL, tmp_path / "ours.gguf", dtype=dtype)))
    found, true = logits(tmp_path / "ours.gguf"), logits(plain)
    assert np.linalg.norm(found - true) < 5e-3 * np.linalg.norm(true)


@pytest.mark.parametrize("mix", ALONE, ids=lambda mix: mix.name)
def test_mixes(plain: Path, tmp_path: Path, mix: Any) -> None:
    theirs, ours = tmp_path / "theirs.gguf", tmp_path / "ours.gguf"
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = mix.number
    options.nthread = 1
    assert not llama_cpp.llama_model_quantize(bytes(plain), bytes(theirs), options)
    convert(prepare(Request(MODEL, ours, quantize=Scheme.named(mix.name))))
    assert np.array_equal(logits(ours), logits(theirs))
