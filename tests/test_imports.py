"""The house rules on imports: lower rooms know nothing of upper ones, heavy packages come late."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "maxtool"
SAMPLE = ROOT / "samples" / "fireside"

# From the ground up: a room imports itself and the rooms of lower floors, nothing else of maxtool.
FLOORS = (
    ("__init__", "runtime"),
    ("errors",),
    ("dtype", "files", "parallel", "urls"),
    ("casting",),
    ("quantization",),
    ("weights",),
    ("tokenizer", "graph", "evaluation", "object_storage"),
    ("driver", "parity"),
    ("importers", "nn"),
    ("architectures", "engine", "experimental"),
    ("recipe",),
    ("conversion", "compiler"),
    ("artifact", "benchmark", "cluster", "serve", "sources"),
    ("build",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Who imports modules by names in strings, and how these begin: eager operations find the compiler,
# and quantizers the compiled ones, which register themselves; compiled modules what writes
# artifacts, and the reader of artifacts how quantized weights are packed, from below; the program
# imports the file of the command that is asked for.
MODULE_NAME = re.compile(r"maxtool\.[\w.]*")
BY_NAME = {
    ("graph/executor.py", "maxtool.compiler.compiling_executor"),
    ("nn/saving.py", "maxtool.artifact.saving"),
    ("quantization/acceleration.py", "maxtool.compiler.quantizers.compiled_quantizers"),
    ("weights/packed_blocks.py", "maxtool.compiler.quantized_packing"),
    ("cli/app.py", "maxtool.cli."),
}
# Who imports files by their paths: the loader's table of options, without the loader; a file of
# modules that a user wrote; the loader that lies beside an artifact's run.py; and TVM's packages,
# without frameworks.
BY_PATH = {
    "compiler/tvm_import.py",
    "cli/programs.py",
    "artifact/user_module.py",
    "runtime/run.py",
    "runtime/loader/bounded_program.py",
}
# Copied into every artifact, where there is no maxtool.
ALONE = "runtime"

COMPILER_PACKAGES = {"tvm": {"compiler"}, "tvm_ffi": {"compiler", "runtime"}, "cuda": {"compiler"}}
IMPORTED_AS = {
    "apache-tvm": "tvm",
    "apache-tvm-ffi": "tvm_ffi",
    "cuda-bindings": "cuda",
    "pillow": "PIL",
    "protobuf": "google",
}
# Extras with packages that are used where they are asked for.
EXTRAS = (
    "cuda",
    "hub",
    "images",
    "json",
    "onnxruntime",
    "ray",
    "remote",
    "serve",
    "transformers",
    "zig",
)
# Packages whose files are used: programs, libraries and headers, which no import can show.
BY_FILE = {
    "nvidia-cuda-cccl",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-runtime",
    "ziglang",
}
# Type checkers know it wherever it is imported for them; nobody needs it to run anything.
FOR_CHECKERS = "typing_extensions"
NEVER = {"torch", "transformers", "tensorflow", "jax", "click", "pickle"}
# The files that run original models for `compile --check transformers`.
ORIGINAL = "artifact/original_model.py"
ORIGINALS = (ORIGINAL, "artifact/original_dense.py")


class Import(NamedTuple):
    """One imported module, and where."""

    file: Path
    module: str

    @property
    def inside(self) -> str:
        return self.file.relative_to(PACKAGE).as_posix()

    @property
    def room(self) -> str:
        return self.inside.split("/")[0].removesuffix(".py")

    @property
    def top(self) -> str:
        return self.module.split(".")[0]


def imports_of(file: Path) -> Iterator[Import]:
    alone = file.is_relative_to(PACKAGE / ALONE)
    for node in nodes_of(file):
        for module in modules_of(node, alone):
            yield Import(file, module)


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def modules_of(node: ast.AST, alone: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    if node.level == 1 and alone:  # its own package, whatever that is called in an artifact
        return []
    assert not node.level, "relative imports hide which room is meant"
    if node.module == "maxtool":
        return [f"maxtool.{alias.name}" for alias in node.names]
    return [node.module or ""]


@cache
def imports() -> list[Import]:
    """Return the imports of every file of the package."""
    return [result for file in sorted(PACKAGE.rglob("*.py")) for result in imports_of(file)]


def target_room(module: str) -> str:
    """The room a module of maxtool lies in; a name like ``maxtool.__version__`` is in none."""
    room = module.partition(".")[2].split(".")[0]
    return room if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file() else "__init__"


def test_every_room_has_a_floor() -> None:
    rooms = {entry.name.removesuffix(".py") for entry in PACKAGE.iterdir() if has_code(entry)}
    assert rooms <= set(FLOOR), "give the new room a floor in this test and in docs/architecture.md"


def has_code(entry: Path) -> bool:
    return entry.suffix == ".py" or any(entry.glob("*.py"))


@pytest.mark.long
def test_lower_rooms_never_import_upper_ones() -> None:
    wrong = [
        f"{result.inside} imports {result.module}"
        for result in imports()
        if result.top == "maxtool"
        and (target := target_room(result.module)) != result.room
        and FLOOR[target] >= FLOOR[result.room]
    ]
    assert not wrong


def test_modules_imported_by_name_are_listed() -> None:
    named = {
        (inside(file), node.value)
        for file in PACKAGE.rglob("*.py")
        if uses(file, "import_module", "__import__")
        for node in nodes_of(file)
        if isinstance(node, ast.Constant) and MODULE_NAME.fullmatch(str(node.value))
    }
    assert named == BY_NAME


def test_files_imported_by_path_are_listed() -> None:
    loaders = ("spec_from_file_location", "spec_from_loader", "SourceFileLoader", "run_path")
    assert {inside(file) for file in PACKAGE.rglob("*.py") if uses(file, *loaders)} == BY_PATH


def uses(file: Path, *names: str) -> bool:
    """Return whether a file names one of some functions."""
    used = {getattr(node, "attr", getattr(node, "id", None)) for node in nodes_of(file)}
    return not used.isdisjoint(names)


def inside(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def test_no_circles() -> None:
    """Allow no circle, imports for type checkers and inside functions counted."""
    arrows = arrows_between_files()
    assert not [
        f"{short(module)} -> {short(to)}"
        for circle in circles(arrows)
        for module in sorted(circle)
        for to in sorted(arrows[module] & circle)
    ]


def short(module: str) -> str:
    return module.removeprefix("maxtool.")


def arrows_between_files() -> dict[str, set[str]]:
    """The files that each file imports, both as names of modules.

    An import of a name counts for the file with that name: a package's ``__init__`` is meant only
    by who imports what it defines or hands on.
    """
    files = {module_name(file): file for file in PACKAGE.rglob("*.py")}
    return {module: targets(module, file, files) - {module} for module, file in files.items()}


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def targets(module: str, file: Path, files: dict[str, Path]) -> set[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    result = set()
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, (package if node.level else None, node.module)))
            names = {f"{base}.{alias.name}" for alias in node.names}
            result |= names & files.keys() | ({base} if names - files.keys() else set())
    return result & files.keys()


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """The groups of nodes each of which leads to all others."""
    reached = {node: reachable(node, arrows) for node in arrows}
    groups = {
        frozenset(other for other in reached[node] if node in reached[other])
        for node in arrows
        if node in reached[node]
    }
    return [set(group) for group in groups]


def reachable(node: str, arrows: dict[str, set[str]]) -> set[str]:
    """The nodes that arrows lead to from a node."""
    result: set[str] = set()
    waiting = [node]
    while waiting:
        new = arrows[waiting.pop()] - result
        result |= new
        waiting += new
    return result


def test_the_loader_imports_nothing_of_maxtool() -> None:
    files = list((PACKAGE / ALONE).rglob("*.py"))
    assert len(files) > 5
    assert "maxtool" not in {result.top for file in files for result in imports_of(file)}


@pytest.mark.parametrize("package", COMPILER_PACKAGES)
def test_only_the_compiler_and_the_loader_import_tvm(package: str) -> None:
    rooms = {result.room for result in imports() if result.top == package}
    assert rooms <= COMPILER_PACKAGES[package]


def test_frameworks_are_never_imported() -> None:
    others = [result for result in imports() if result.inside not in ORIGINALS]
    assert not [result for result in others if result.top in NEVER]


def test_original_models_are_imported_when_they_are_asked_for() -> None:
    for file in ORIGINALS:
        top = ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
        assert not {one for node in top for one in modules_of(node, alone=False)} & NEVER
    assert {"torch", "transformers"} <= {one.top for one in imports() if one.inside == ORIGINAL}


def test_the_packages_imported_are_those_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    names = {re.match(r"[\w-]+", line)[0] for line in [*project["dependencies"], *extras]}  # type: ignore[index]
    assert names >= BY_FILE
    declared = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names - BY_FILE}
    imported = {result.top for result in imports()}
    assert imported - sys.stdlib_module_names - {"maxtool", FOR_CHECKERS} == declared


def test_packages_used_without_an_import_are_named() -> None:
    constants = (
        node.value
        for file in PACKAGE.rglob("*.py")
        for node in nodes_of(file)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    assert set(constants) >= BY_FILE


def test_what_is_for_type_checkers_is_imported_for_them_only() -> None:
    files = {one.file for one in imports() if one.top == FOR_CHECKERS}
    assert files
    assert not [file for file in files if not is_guarded(file)]


def is_guarded(file: Path) -> bool:
    """Return whether every import of what is for type checkers is for them only."""
    nodes = nodes_of(file)
    checks = [node for node in nodes if isinstance(node, ast.If)]
    guarded = [check for check in checks if ast.unparse(check.test) == "TYPE_CHECKING"]
    inside = [statement for check in guarded for statement in check.body]
    result = [node for node in nodes if FOR_CHECKERS in (modules_of(node, alone=False) or [""])]
    return all(node in inside for node in result)


# Lets quantizers be compiled for any number of elements.
ALWAYS_COMPILED = """
from maxtool.quantization import codec
codec.WORTHWHILE = {True: 1, False: 1}
"""


def loaded_by(*commands: list[str], before: str = "") -> set[str]:
    """The top-level packages that are loaded when the commands have succeeded."""
    code = f"""
import json, sys
{before}
from maxtool.cli.app import app
for command in {commands!r}:
    try:
        app(command)
    except SystemExit as end:
        assert not end.code, end.code
print("\\n" + json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["convert", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"numpy", "onnx", "tvm", "tvm_ffi", "gguf", "safetensors", "tokenizers"}
    assert not heavy & loaded_by(arguments)


def test_only_quantizing_loads_the_compiler(tmp_path: Path) -> None:
    result, quantized = str(tmp_path / "fireside.gguf"), str(tmp_path / "quantized.gguf")
    loaded = loaded_by(
        ["inspect-weights", str(SAMPLE)],
        ["convert", str(SAMPLE), "-o", result],
        ["inspect-weights", result, "--metadata"],
        ["convert", result, "-o", str(tmp_path / "back")],
        ["convert", str(SAMPLE), "-o", quantized, "--quantize", "Q8_0"],  # too little to compile
    )
    assert "maxtool" in loaded
    assert not {"tvm", "tvm_ffi", "torch", "transformers"} & loaded


@pytest.fixture
def pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a PyTorch that ends each program by which it is imported."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
@pytest.mark.parametrize(
    "module", ["engine", "nn.eager", "compiler.cuda.binaries", "cli.build_preload"]
)
def test_the_compiler_imports_no_framework(module: str) -> None:
    """Leave out PyTorch, which TVM imports where it is installed, whoever imports TVM first."""
    code = (
        f"import sys, maxtool.{module}, maxtool.compiler.pipeline; 'tvm' in sys.modules or exit(2)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_commands_that_compile_import_no_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAXTOOL_CACHE", str(tmp_path / "cache"))
    quantized = str(tmp_path / "quantized.gguf")
    quantize = ["convert", str(SAMPLE), "-o", quantized, "--force", "--quantize", "Q8_0"]
    assert "tvm" in loaded_by(quantize, before=ALWAYS_COMPILED)
    assert "tvm_ffi" in (kept := loaded_by(quantize, before=ALWAYS_COMPILED))
    assert "tvm" not in kept
    loaded = loaded_by(["compile", str(SAMPLE), "-o", str(tmp_path / "out"), "--dry-run"])
    assert {"tvm", "tvm_ffi"} <= loaded
    assert "torch" not in loaded
