"""The manifest's record of how an artifact was made: all that it was made from, and no place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from maxtool import artifact
from maxtool.artifact import build_record
from maxtool.conversion import Request, prepare
from maxtool.quantization.scheme import Scheme
from maxtool.weights.files_read import files_noted, named, note_read
from tests.artifact.measure import Compile


def build_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "manifest.json").read_text())["build"])


def test_a_recipe_and_those_that_it_extends(compiled: Compile, data: Path) -> None:
    build = build_of(compiled(data / "tiny-llama"))
    recipes = Path(artifact.__file__).parents[2] / "recipes"
    assert [one["file"] for one in build["recipe"]][:2] == ["llama.toml", "_decoder.toml"]
    for one in build["recipe"]:
        assert one["sha256"] == hashlib.sha256((recipes / one["file"]).read_bytes()).hexdigest()


def test_options_stand_with_their_defaults_and_without_folders(data: Path, tmp_path: Path) -> None:
    scheme = Scheme.named("Q4_0")
    request = artifact.Request(
        data / "tiny-llama", tmp_path / "out", recipe=f"{tmp_path}/mine.toml", quantize=scheme
    )
    origin = {"name": "hf://org/model", "commit": "0" * 40}
    given = artifact.Request(data / "tiny-llama", tmp_path / "o", origin=origin)
    contents = artifact.prepare(given).contents
    told: Any = build_record.described(request, contents, {})
    options = told["options"]
    assert told["origin"] == origin
    assert "origin" not in options
    assert (options["recipe"], options["batch"], options["dtype"]) == ("mine.toml", 1, None)
    assert options["quantize"]["mix"] == "Q4_0"
    assert "output" not in options
    json.dumps(options)


def test_a_compiler_and_a_linker_say_their_versions(compiled: Compile, data: Path) -> None:
    build = build_of(compiled(data / "tiny-llama"))
    assert build["versions"].keys() == {"maxtool", "tvm", "tvm_ffi", "llvm", "numpy"}
    assert all(build["versions"].values())
    assert "/" not in build["linker"]["name"]
    assert build["linker"]["versions"]


def test_every_file_that_is_read_is_a_source(data: Path, tmp_path: Path) -> None:
    source = data / "tiny-llama"
    planned = prepare(Request(source, tmp_path / "x.gguf"))
    assert {*planned.read} == {path.name for path in source.iterdir() if path.name in planned.read}
    assert {"config.json", "model.safetensors", "tokenizer.model"} <= {*planned.read}
    told = planned.hashed_sources()
    assert told["model.safetensors"]["sha256"] is None
    digest = hashlib.sha256((source / "config.json").read_bytes()).hexdigest()
    assert told["config.json"]["sha256"] == digest


def test_modules_that_a_file_imports_are_sources(tmp_path: Path) -> None:
    """Modules beside it count, not what is installed, below it or elsewhere."""
    (tmp_path / "beside_it").mkdir()
    (tmp_path / "beside_it" / "__init__.py").write_text("SCALE = 2\n")
    (tmp_path / "mine.py").write_text(
        "import numpy\nfrom beside_it import SCALE\n"
        "from maxtool import nn\n\n\nclass Net(nn.Module):\n"
        "    def __call__(self, x):\n        return x * SCALE\n"
    )
    reference = artifact.parse_reference(f"{tmp_path / 'mine.py'}:Net")
    assert reference is not None
    entries = tuple(artifact.parse_entries((), ["x=float32[batch,4]"]))
    request = artifact.ModuleRequest(
        module=reference, weights=None, entries=entries, output=tmp_path / "out"
    )
    contents = artifact.prepare_module(request).contents
    assert contents.sources.keys() == {"beside_it/__init__.py", "mine.py"}
    assert [file.name for file in contents.executed] == ["mine.py"]


def test_inner_records_are_part_of_outer_ones() -> None:
    with files_noted() as outer:
        note_read(Path("a"))
        with files_noted() as inner:
            note_read(Path("b"))
        note_read(Path("a"))
    note_read(Path("c"))
    assert ([*outer], [*inner]) == ([Path("a"), Path("b")], [Path("b")])


def test_names_are_relative_and_never_taken_twice(tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.mkdir()
    paths = [source / "a.json", source / "deep" / "a.json", tmp_path / "a.json", Path("/x/a.json")]
    assert [*named(paths, source)] == ["a.json", "a.json#2", "a.json#3", "deep/a.json"]
    assert [*named([source / "m.gguf"], source / "m.gguf")] == ["m.gguf"]
