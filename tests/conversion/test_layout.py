"""Outputs in several files: cut, named and described as huggingface_hub and gguf-py do it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from huggingface_hub.serialization import split_state_dict_into_shards_factory
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from maxtool.cli.app import app
from maxtool.cli.sizes import parse_size
from maxtool.conversion import Request
from maxtool.conversion.layout import laid_out
from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.files import sha256
from maxtool.weights import TensorSpec, open_checkpoint
from maxtool.weights.names import natural_key

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny-llama"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def arrays(path: Path) -> dict[str, bytes]:
    checkpoint = open_checkpoint(path)
    return {name: checkpoint.read(name).data.tobytes() for name in sorted(checkpoint.tensors)}


def cut(sizes: list[int], output: str, **limit: int) -> list[list[str]]:
    """The names of the tensors of each file, for tensors of these sizes."""
    specs = [TensorSpec(f"t.{n}", DType.uint8, (size,)) for n, size in enumerate(sizes)]
    pairs = [(spec, np.zeros(spec.shape, np.uint8)) for spec in specs]
    layout = laid_out(Request(Path("x"), Path(output), **limit), pairs, {}, {})
    return [[spec.name for spec, _ in file.tensors] for file in layout.files]


SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 20))
def test_shards_are_cut_as_by_huggingface_hub(sizes: list[int], most: int) -> None:
    split = split_state_dict_into_shards_factory(
        {f"t.{n}": size for n, size in enumerate(sizes)},
        get_storage_size=int,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=most,
    )
    theirs = list(split.filename_to_tensors.values())
    assert [sorted(names, key=natural_key) for names in cut(sizes, "o", shard_size=most)] == theirs


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 20))
def test_splits_are_cut_as_by_gguf_py(sizes: list[int], most: int) -> None:
    writer = gguf.GGUFWriter(None, "llama", split_max_size=most)
    for number, size in enumerate(sizes):
        writer.add_tensor_info(f"t.{number}", (size,), np.dtype(np.int8), size)
    theirs = [list(tensors) for tensors in writer.tensors]
    assert cut(sizes, "o.gguf", split_max_size=most) == theirs


def test_splits_hold_what_one_file_does(tmp_path: Path) -> None:
    assert run(MODEL, "-o", tmp_path / "one.gguf").exit_code == 0
    result = run(MODEL, "-o", tmp_path / "m.gguf", "--split-max-size", "50K")
    assert f"wrote {tmp_path}/m-00001-of-00004.gguf and 3 more files" in result.stdout
    parts = sorted(tmp_path.glob("m-*"))
    assert [part.name for part in parts] == [f"m-{n:05d}-of-00004.gguf" for n in range(1, 5)]
    whole = open_checkpoint(tmp_path / "one.gguf")
    for number, part in enumerate(parts):
        assert arrays(part) == arrays(tmp_path / "one.gguf")
        fields = gguf.GGUFReader(part).fields
        assert fields["split.no"].contents() == number
        assert fields["split.count"].contents() == 4
        assert fields["split.tensors.count"].contents() == len(whole.tensors)
        assert fields["split.tensors.count"].types == [gguf.GGUFValueType.INT32]
        assert ("llama.block_count" in fields) is (number == 0)
    # And back: the same bytes as if it had never been split.
    assert run(parts[2], "-o", tmp_path / "joined.gguf").exit_code == 0
    assert (tmp_path / "joined.gguf").read_bytes() == (tmp_path / "one.gguf").read_bytes()


@pytest.mark.parametrize("output", ["m", "m.safetensors"])
def test_shards_hold_what_one_file_does(tmp_path: Path, output: str) -> None:
    assert run(MODEL, "-o", tmp_path / output, "--shard-size", "50KB").exit_code == 0
    folder, stem = (tmp_path / "m", "model") if output == "m" else (tmp_path, "m")
    index = json.loads((folder / f"{stem}.safetensors.index.json").read_text())
    expected = open_checkpoint(MODEL).tensors
    assert set(index["weight_map"]) == set(expected)
    assert index["metadata"] == {
        "total_parameters": sum(info.size for info in expected.values()),
        "total_size": sum(info.nbytes for info in expected.values()),
    }
    assert arrays(folder / f"{stem}.safetensors.index.json") == arrays(MODEL)
    for name, file in index["weight_map"].items():
        with safe_open(folder / file, "np") as shard:
            assert name in shard.keys()  # noqa: SIM118
            assert shard.metadata() == {"format": "pt"}


@pytest.mark.peers
def test_transformers_opens_shards(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    assert run(MODEL, "-o", tmp_path / "m", "--shard-size", "50KB").exit_code == 0
    ours, theirs = (
        transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in (tmp_path / "m", MODEL)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL)
    model.save_pretrained(tmp_path / "t", max_shard_size="50KB")
    index = "model.safetensors.index.json"
    metadata = [json.loads((tmp_path / f / index).read_text())["metadata"] for f in "mt"]
    assert metadata[0] == metadata[1]


@pytest.mark.parametrize(
    ("output", "options"),
    [
        ("m.gguf", ["--split-max-size", "40K"]),
        ("m.safetensors", ["--shard-size", "40K"]),
        ("m", ["--shard-size", "40K"]),
        ("m.gguf", ["--split-max-size", "40G"]),
    ],
)
def test_dry_run_says_the_exact_bytes_of_each_file(
    tmp_path: Path, output: str, options: list[str]
) -> None:
    planned = run(MODEL, "-o", tmp_path / output, *options, "--dry-run", "--json")
    assert list(tmp_path.iterdir()) == []
    assert run(MODEL, "-o", tmp_path / output, *options).exit_code == 0
    folder = tmp_path / output if (tmp_path / output).is_dir() else tmp_path
    written = {file.name: file.stat().st_size for file in folder.iterdir()}
    content = json.loads(planned.stdout)
    assert content["files"] == written
    assert content["bytes"] == sum(written.values())


def test_an_old_output_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Leave no part of an output that had more files, and nothing of another's name."""
    other = tmp_path / "mm-00001-of-00009.gguf"
    other.write_bytes(b"mine")
    arguments = (MODEL, "-o", tmp_path / "m.gguf", "--split-max-size")
    assert run(*arguments, "30K").exit_code == 0
    before = sorted(tmp_path.iterdir())
    refused = run(*arguments, "120K")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert sorted(tmp_path.iterdir()) == before
    assert run(*arguments, "120K", "--force").exit_code == 0
    assert {file.name for file in tmp_path.iterdir()} == {
        "m-00001-of-00002.gguf",
        "m-00002-of-00002.gguf",
        other.name,
    }


def test_a_split_source_is_never_replaced(tmp_path: Path) -> None:
    assert run(MODEL, "-o", tmp_path / "m.gguf", "--split-max-size", "120K").exit_code == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    first = tmp_path / "m-00001-of-00002.gguf"
    result = run(first, "-o", tmp_path / "m.gguf", "--split-max-size", "30K", "--force")
    assert result.exit_code == 2
    assert "overwrite the source" in result.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.long
def test_two_writers_of_splits(tmp_path: Path) -> None:
    """Leave the parts of one of them, and no mixture."""
    command = [sys.executable, "-m", "maxtool", "convert", MODEL, "-o", tmp_path / "m.gguf"]
    command += ["--split-max-size", "40K", "--force", "--dtype"]
    both = [subprocess.Popen([*command, kind]) for kind in ("float16", "bfloat16")]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"m-{n:05d}-of-00003.gguf" for n in range(1, 4)]
    types = {info.type_name for info in open_checkpoint(tmp_path / names[0]).tensors.values()}
    assert len(types & {"F16", "BF16"}) == 1


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("m.gguf", ["--shard-size", "1G"], "--split-max-size"),
        ("m", ["--split-max-size", "1G"], "--shard-size"),
        ("m", ["--shard-size", "many"], "5GB, 500MiB or 2G"),
        ("m", ["--shard-size", "0"], "5GB, 500MiB or 2G"),
    ],
)
def test_usage(tmp_path: Path, output: str, options: list[str], message: str) -> None:
    result = run(MODEL, "-o", tmp_path / output, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_too_many_files() -> None:
    with pytest.raises(UsageError, match="at most 4096"):
        cut([1] * 5000, "o.gguf", split_max_size=1)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("5GB", 5 * 10**9), ("2G", 2 * 10**9), ("1.5MiB", 3 << 19), ("500 KB", 500_000), ("77", 77)],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text, "--shard-size") == nbytes


FORMS = {
    "m.gguf": ["--split-max-size", "30K"],
    "m.safetensors": ["--shard-size", "30K"],
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("several_first", [True, False])
def test_files_of_an_earlier_form_are_removed(
    tmp_path: Path, name: str, several_first: bool
) -> None:
    """Leave nothing for readers that a fresh folder would not have, and what is not of the name."""
    forms = [FORMS[name], []] if several_first else [[], FORMS[name]]
    strangers = {"m2.gguf", "m-1-of-2.gguf", "mm-00001-of-00002.safetensors", "m.gguf.txt"}
    for folder in ("to", "fresh"):
        (tmp_path / folder).mkdir()
    for stranger in strangers:
        (tmp_path / "to" / stranger).touch()
    assert run(MODEL, "-o", tmp_path / "to" / name, *forms[0], "--sha256").exit_code == 0
    result = run(MODEL, "-o", tmp_path / "to" / name, *forms[1], "--force")
    assert result.exit_code == 0
    assert "--force removes" in result.stderr
    assert f"{name}.sha256" in result.stderr
    assert run(MODEL, "-o", tmp_path / "fresh" / name, *forms[1]).exit_code == 0
    there, fresh = ({path.name for path in (tmp_path / at).iterdir()} for at in ("to", "fresh"))
    assert there == fresh | strangers


def test_a_source_of_another_form_stays(tmp_path: Path) -> None:
    """Join splits into one file beside them: they are not what an earlier output left."""
    whole, options = tmp_path / "m.gguf", ["--split-max-size", "30K"]
    assert run(MODEL, "-o", whole, *options, "--sha256").exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    first = tmp_path / "m-00001-of-00009.gguf"
    result = run(first, "-o", whole, "--force")
    assert result.exit_code == 0
    assert "removes" not in result.stderr
    assert {path: path.read_bytes() for path in before} == before
    assert set(tmp_path.iterdir()) == {*before, whole}


def test_a_file_named_by_itself_leaves_room_beside_it(tmp_path: Path) -> None:
    shutil.copytree(MODEL, tmp_path, dirs_exist_ok=True)
    file, beside = tmp_path / "model.safetensors", tmp_path / "m.gguf"
    assert run(file, "-o", beside).exit_code == 0
    refused = {
        tmp_path: beside.with_name("other.gguf"),  # a folder is a source as a whole
        file: tmp_path,
        beside: beside,
    }
    for source, output in refused.items():
        result = run(source, "-o", output, "--force")
        assert result.exit_code == 2
        assert "overwrite the source" in result.stderr
    configuration = run(file, "-o", tmp_path / "config.json", "--to", "gguf", "--force")
    assert "overwrite the source" in configuration.stderr


@pytest.mark.parametrize("name", ["to.safetensors", "to.npz", "to.gguf"])
def test_checksums_of_tensors_that_are_stored_in_another_order(tmp_path: Path, name: str) -> None:
    """Hash while it is written: wide types come first in safetensors, and layer 10 before 2."""
    names = [f"model.layers.{layer}.{part}.weight" for layer in range(12) for part in ("a", "norm")]
    tensors = {name: np.full((2, 3), at, "f2") for at, name in enumerate(names)}
    save_file(tensors, tmp_path / "from.safetensors")
    options = ["--no-recipe", "--cast", "*norm*=float32", "--sha256", "--json"]
    done = run(tmp_path / "from.safetensors", "-o", tmp_path / name, *options)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)["sha256"]
    assert said
    for file, digest in said.items():
        assert digest == sha256(tmp_path / file)
