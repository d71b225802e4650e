"""Quantized files of random models, with outliers: the bytes that llama-quantize writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from maxtool.conversion import Request, convert, prepare
from maxtool.dtype import DType
from maxtool.errors import ModelMismatch, UsageError
from maxtool.quantization.scheme import Scheme
from tests.conversion.quantized_models import (
    CASES,
    digest,
    importance,
    key,
    model,
    recorded,
    write_gguf,
    write_older,
)
from tests.effort import thinned

KEPT = ("Q4_0", "Q2_K_S", "Q3_K_M", "Q4_K_M")
Files = dict[str, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Models by name, and beside each its importance; made when a test asks for them."""
    return {"folder": tmp_path_factory.mktemp("models")}


def source(made: Files, name: str) -> Path:
    if name not in made:
        made[name] = model(made["folder"] / name, name)
        plain = made["folder"] / f"{name}.gguf"
        convert(prepare(Request(made[name], plain, dtype=DType.float32)))
        write_older(made["folder"] / f"{name}.dat", importance(plain))
    return made[name]


def run(source: Path, output: Path, scheme: Scheme) -> list[str]:
    planned = prepare(Request(source, output, quantize=scheme, force=True))
    convert(planned)
    return planned.notes


def scheme(mix: str, file: Path | None = None) -> Scheme:
    return replace(Scheme.named(mix), importance=file)


@pytest.mark.parametrize(
    ("name", "mix", "weighed"),
    thinned(CASES, *(case for case in CASES if case[1] in KEPT and case[2])),
)
def test_bytes_are_those_of_llama_quantize(
    made: Files, tmp_path: Path, name: str, mix: str, weighed: bool
) -> None:
    folder = source(made, name)
    file = made["folder"] / f"{name}.dat" if weighed else None
    run(folder, tmp_path / "a.gguf", scheme(mix, file))
    assert digest(tmp_path / "a.gguf") == recorded()[key((name, mix, weighed))]


def test_both_forms_of_importance_say_the_same(made: Files, tmp_path: Path) -> None:
    """Experts have importance of their own, one after the other."""
    folder = source(made, "experts")
    write_gguf(tmp_path / "a.imatrix", importance(made["folder"] / "experts.gguf"))
    run(folder, tmp_path / "a.gguf", scheme("Q4_K_M", tmp_path / "a.imatrix"))
    assert digest(tmp_path / "a.gguf") == recorded()[key(("experts", "Q4_K_M", True))]


def test_the_file_says_what_it_was_weighed_by(made: Files, tmp_path: Path) -> None:
    folder, file = source(made, "llama"), made["folder"] / "llama.dat"
    notes = run(folder, tmp_path / "a.gguf", scheme("Q4_0", file))
    assert not any("without importance" in note for note in notes if "token_embd" not in note)
    fields = GGUFReader(tmp_path / "a.gguf").fields
    said = {key: field.contents() for key, field in fields.items() if "imatrix" in key}
    assert said == {
        "quantize.imatrix.file": "llama.dat",
        "quantize.imatrix.dataset": "text.txt",
        "quantize.imatrix.entries_count": len(importance(made["folder"] / "llama.gguf")),
        "quantize.imatrix.chunks_count": 12,
    }


def test_what_needs_importance_is_refused_without(made: Files, tmp_path: Path) -> None:
    folder = source(made, "llama")
    with pytest.raises(UsageError, match="--imatrix") as caught:
        run(folder, tmp_path / "a.gguf", scheme("Q2_K_S"))
    assert len(caught.value.problems) > 5
    entries = importance(made["folder"] / "llama.gguf")
    del entries["blk.1.ffn_up.weight"]
    write_older(tmp_path / "some.dat", entries)
    with pytest.raises(UsageError) as caught:
        run(folder, tmp_path / "a.gguf", scheme("Q2_K_S", tmp_path / "some.dat"))
    assert caught.value.problems == ("blk.1.ffn_up.weight",)
    notes = run(folder, tmp_path / "a.gguf", scheme("Q4_0", tmp_path / "some.dat"))
    (note,) = [note for note in notes if "without importance" in note]
    assert note.startswith("2 tensors are")


@pytest.mark.parametrize("weighed", [False, True])
def test_compiling_gives_the_bytes_of_converting(
    made: Files, tmp_path: Path, weighed: bool
) -> None:
    from maxtool import artifact

    folder, file = source(made, "experts"), made["folder"] / "experts.dat"
    wanted = scheme("Q4_K_M", file if weighed else None)
    run(folder, tmp_path / "a.gguf", wanted)
    ours = artifact.prepare(artifact.Request(folder, tmp_path / "out", quantize=wanted)).contents
    theirs = artifact.prepare(artifact.Request(tmp_path / "a.gguf", tmp_path / "out")).contents
    assert ours.encodings == theirs.encodings
    assert len(set(ours.encodings.values())) > 3
    for name in ours.encodings:
        np.testing.assert_array_equal(ours.read(name).data, theirs.read(name).data, err_msg=name)


def test_importance_of_another_model_is_refused(made: Files, tmp_path: Path) -> None:
    """Sizes that do not fit are listed at once; those of an embedding are passed over."""
    folder, file = source(made, "llama"), tmp_path / "other.dat"
    entries = importance(made["folder"] / "llama.gguf")
    wrong: dict[str, Any] = {name: values[:, :-32] for name, values in entries.items()}
    wrong["output.weight"] = entries["output.weight"]
    write_older(file, wrong)
    with pytest.raises(ModelMismatch, match="another model") as caught:
        run(folder, tmp_path / "a.gguf", scheme("Q4_0", file))
    assert "blk.{0..1}.ffn_up.weight has 256 columns" in "\n".join(caught.value.problems)
    write_older(file, {"elsewhere.weight": np.ones((1, 4), np.float32)})
    with pytest.raises(ModelMismatch, match="no matrix has a name"):
        run(folder, tmp_path / "a.gguf", scheme("Q4_0", file))
    write_older(file, {**entries, "token_embd.weight": np.ones((1, 7), np.float32)})
    run(folder, tmp_path / "a.gguf", scheme("Q4_0", file))
    assert digest(tmp_path / "a.gguf") == recorded()[key(("llama", "Q4_0", True))]


def test_the_importance_matrix_is_never_overwritten(made: Files) -> None:
    folder, file = source(made, "llama"), made["folder"] / "llama.dat"
    with pytest.raises(UsageError, match="overwrite the source"):
        prepare(Request(folder, file, to="gguf", quantize=scheme("Q4_0", file), force=True))
