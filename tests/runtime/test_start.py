"""Imports of a process until the first token: each module is time that a user waits."""

from __future__ import annotations

import json
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_artifact

# What a model on a CPU needs to continue token ids.
NEEDED = {
    "audio_spec",
    "class_entries",
    "consistency",
    "constraint",
    "devices",
    "entries",
    "errors",
    "execution",
    "ffi",
    "host",
    "image_entries",
    "dual_encoder_entries",
    "image_spec",
    "image_tokens",
    "inputs",
    "machine",
    "manifest",
    "manifest_fields",
    "manifest_parser",
    "manifest_rule",
    "memory",
    "model",
    "narrow_floats",
    "placed_images",
    "processor",
    "rewriting_entries",
    "sampling",
    "session",
    "slots",
    "source_entries",
    "specs",
    "speech_entries",
    "speech_spec",
    "text_entries",
    "tokens",
    "unwritten",
    "verified",
    "watched_files",
    "writing_spec",
    "wrong_path",
}
# What tvm_ffi imports where it is installed, and what other uses of a model need.
HEAVY = {"torch", "cuda.bindings", "jinja2", "tokenizers", "numpy.random", "argparse", "tvm"}
HEAVY |= {"tvm_ffi.cpp", "tvm_ffi.dataclasses", "tvm_ffi.structural"}
HEAVY |= {"importlib.metadata", "email.parser", "logging", "subprocess"}
# A variable that would hide what Python writes beside modules that it imports.
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
# Prints which of the loader's files are compiled when a model is opened.
COMPILED = """
import json, sys
compiled = []
def note(event, arguments):
    if event == "compile" and str(arguments[1]).startswith("loader/"):
        compiled.append(arguments[1])
sys.addaudithook(note)
import run
run.Manifest(run.FOLDER)
print(json.dumps(compiled))
"""
CONTINUED = """
import json, sys
import run
list(run.load().generate([1, 5], max_tokens=3, **json.loads(sys.argv[1])))
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(folder: Path, code: str, *arguments: str) -> set[str]:
    """The modules that are imported when a program beside an artifact has ended."""
    paths = [folder, folder.parent / "installed"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def of_loader(modules: set[str]) -> set[str]:
    return {name.partition(".")[2] for name in modules if name.startswith("maxtool_loader_")} - {""}


@pytest.fixture
def installed(artifact: Path) -> Path:
    """A folder of packages as if frameworks were installed."""
    folder = artifact.parent / "installed"
    for package in ("torch", "cuda/bindings"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "cuda" / "bindings" / "driver.py").write_text("class CUstream: ...\n")
    return folder


@pytest.mark.usefixtures("installed")
def test_tokens_need_few_modules(artifact: Path) -> None:
    modules = modules_after(artifact, CONTINUED, "{}")
    assert of_loader(modules) == NEEDED
    assert not modules & HEAVY


@pytest.mark.usefixtures("installed")
def test_drawing_needs_random_numbers(artifact: Path) -> None:
    modules = modules_after(artifact, CONTINUED, '{"temperature": 1.0}')
    assert of_loader(modules) == NEEDED
    assert modules & HEAVY == {"numpy.random"}


@pytest.mark.parametrize("name", ["Conversation", "TextStream", "generate_many", "open_template"])
def test_the_rest_is_imported_when_it_is_named(artifact: Path, name: str) -> None:
    code = f"import json, sys\nfrom run import {name}\nprint(json.dumps(sorted(sys.modules)))"
    assert of_loader(modules_after(artifact, code)) > {"errors", "model"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("statements", "package"),
    [
        ("import run; run.load(); import torch", "torch"),
        ("import cuda.bindings.driver; import run; run.load()", "cuda.bindings.driver"),
    ],
)
def test_a_framework_can_be_used_beside_a_model(
    artifact: Path, statements: str, package: str
) -> None:
    code = f"import json, sys\n{statements}\nprint(json.dumps(sorted(sys.modules)))"
    assert package in modules_after(artifact, code)


@pytest.mark.parametrize(
    "use",
    [
        "from tvm_ffi import cpp, structural_equal; assert structural_equal([1], [1])",
        "import tvm_ffi; tvm_ffi.cpp.load_inline; tvm_ffi.dataclasses.py_class; tvm_ffi.LIB",
        "import tvm_ffi.structural as it; import tvm_ffi; assert tvm_ffi.structural is it",
        "import tvm_ffi; assert not hasattr(tvm_ffi, 'nonsense')",
        "import tvm; assert tvm.runtime.tensor([1, 2]).shape == (2,)",
    ],
)
def test_all_of_the_ffi_can_be_used_beside_a_model(artifact: Path, use: str) -> None:
    after = "assert len(list(model.generate([1, 5], max_tokens=3))) and tvm_ffi.cpp"
    lines = ["import json, sys, run", "model = run.load()", use, "import tvm_ffi", after]
    code = "\n".join([*lines, "print(json.dumps(sorted(sys.modules)))"])
    assert "tvm_ffi.cpp" in modules_after(artifact, code)


def test_running_adds_no_files(module: Path, ids: dict[str, list[int]], tmp_path: Path) -> None:
    folder, prompts = tmp_path / "artifact", tmp_path / "prompts.txt"
    tokens = [*ids["story"][: tiny_artifact.CONTEXT], tiny_artifact.EOS]
    tiny_artifact.make(folder, module, tokens, len(ids["prompt"]), template=TEMPLATE)
    prompts.write_text("Once\nThe fox\n")
    before = files(folder)
    text = ["--prompt", "Once"]
    ways = [["--ids", "1,5"], text, ["--chat", *text], ["--prompts", prompts], ["--info"]]
    for arguments in ways:
        done = subprocess.run(
            [sys.executable, folder / "run.py", *arguments],
            capture_output=True,
            env={name: value for name, value in os.environ.items() if name != NO_BYTECODE},
            text=True,
            check=False,
        )
        assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    assert files(folder) == before


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def compiled(folder: Path, cache: Path, *flags: str) -> set[str]:
    """The loader's files that a new process compiles, with a user's cache of its own."""
    env = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    env |= {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, *flags, "-c", COMPILED]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout)
    return set(names)


def kept(cache: Path) -> list[Path]:
    return files(cache / "maxtool" / "bytecode") if cache.exists() else []


def test_the_loader_is_compiled_once(artifact: Path, tmp_path: Path) -> None:
    cache, copy = tmp_path / "cache", tmp_path / "copy"
    shutil.copytree(artifact, copy)
    first = compiled(artifact, cache)
    assert "loader/manifest.py" in first
    assert len(kept(cache)) == len(first)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in kept(cache))
    assert compiled(artifact, cache) == set()
    assert compiled(copy, cache) == set()
    changed = copy / "loader" / "errors.py"
    changed.write_text(changed.read_text() + "# more\n")
    assert compiled(copy, cache) == {"loader/errors.py"}
    assert compiled(artifact, cache) == set()


def test_nothing_is_kept_where_python_is_told_so(artifact: Path, tmp_path: Path) -> None:
    assert compiled(artifact, tmp_path / "cache", "-B")
    assert kept(tmp_path / "cache") == []


def test_what_others_may_write_is_compiled_again(artifact: Path, tmp_path: Path) -> None:
    first = compiled(artifact, tmp_path)
    for file in kept(tmp_path):
        file.chmod(0o666)
    assert compiled(artifact, tmp_path) == first
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in kept(tmp_path))


@pytest.mark.parametrize("content", [b"", b"no code", marshal.dumps(3)])
def test_what_is_no_code_is_compiled_again(artifact: Path, tmp_path: Path, content: bytes) -> None:
    first = compiled(artifact, tmp_path)
    for file in kept(tmp_path):
        file.write_bytes(content)
    assert compiled(artifact, tmp_path) == first
    assert compiled(artifact, tmp_path) == set()


def test_a_cache_that_cannot_be_written_is_done_without(artifact: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    assert compiled(artifact, nowhere)


def test_the_program_ends_at_once(artifact: Path) -> None:
    """Handlers of others are called, and what Python would take apart is left to the system."""
    code = """if 1:
        import atexit, runpy, sys, os
        class Kept:
            def __del__(self):
                os.write(2, b"taken apart")
        sys.kept = Kept()
        register = atexit.register
        def once(*arguments):
            register(*arguments)
            register(os.write, 2, b"handlers")
        atexit.register = once
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
    """
    for arguments, expected in ((["--ids", "1,5"], 0), (["--ids", "x"], 2), (["--ids", ""], 3)):
        command = [sys.executable, "-c", code, artifact / "run.py", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == expected, done.stderr
        assert "handlers" in done.stderr
        assert "taken apart" not in done.stderr
        assert bool(done.stdout) == (expected == 0)
