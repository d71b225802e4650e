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
    ("dtype", "files", "parallel"),
    ("casting",),
    ("quantization",),
    ("weights",),
    ("tokenizer", "graph"),
    ("driver",),
    ("nn",),
    ("architectures", "engine", "experimental"),
    ("recipe",),
    ("conversion", "parity", "compiler"),
    ("artifact",),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Eager execution needs the compiler from below: one import, inside one function.
UPWARDS = {("graph/executor.py", "compiler")}
# Copied into every artifact, where there is no maxtool.
ALONE = "runtime"

COMPILER_PACKAGES = {"tvm": {"compiler"}, "tvm_ffi": {"compiler", "runtime"}, "cuda": {"compiler"}}
IMPORTED_AS = {
    "apache_tvm": "tvm",
    "apache_tvm_ffi": "tvm_ffi",
    "cuda_bindings": "cuda",
    "protobuf": "google",
}
# Extras with packages that are imported where they are asked for.
EXTRAS = ("cuda", "remote")
# Type checkers know it wherever it is imported for them; nobody needs it to run anything.
FOR_CHECKERS = "typing_extensions"
NEVER = {"torch", "transformers", "tensorflow", "jax", "click", "pickle"}


class Import(NamedTuple):
    """One imported module, and where."""

    file: Path
    module: str
    in_function: bool

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
    for node, in_function in statements(ast.parse(file.read_text(encoding="utf-8"))):
        for module in modules_of(node, alone):
            yield Import(file, module, in_function)


def statements(node: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement below a node, and whether it is in a function."""
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child, inside
            yield from statements(child, inside)


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
    """Those of every file of the package."""
    return [found for file in sorted(PACKAGE.rglob("*.py")) for found in imports_of(file)]


def target_room(module: str) -> str:
    """The room a module of maxtool lies in; a name like ``maxtool.__version__`` is in none."""
    room = module.partition(".")[2].split(".")[0]
    return room if (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file() else "__init__"


def test_every_room_has_a_floor() -> None:
    rooms = {entry.name.removesuffix(".py") for entry in PACKAGE.iterdir() if has_code(entry)}
    assert rooms <= set(FLOOR), "give the new room a floor in this test and in docs/architecture.md"


def has_code(entry: Path) -> bool:
    return entry.suffix == ".py" or any(entry.glob("*.py"))


def test_lower_rooms_never_import_upper_ones() -> None:
    wrong = [
        f"{found.inside} imports {found.module}"
        for found in imports()
        if found.top == "maxtool"
        and (target := target_room(found.module)) != found.room
        and FLOOR[target] >= FLOOR[found.room]
        and (found.inside, target) not in UPWARDS
    ]
    assert not wrong


def test_upward_imports_are_inside_functions() -> None:
    found = {
        (one.inside, target_room(one.module)): one.in_function
        for one in imports()
        if one.top == "maxtool" and (one.inside, target_room(one.module)) in UPWARDS
    }
    assert found == dict.fromkeys(UPWARDS, True)


def test_the_loader_imports_nothing_of_maxtool() -> None:
    files = list((PACKAGE / ALONE).rglob("*.py"))
    assert len(files) > 5
    assert "maxtool" not in {found.top for file in files for found in imports_of(file)}


@pytest.mark.parametrize("package", COMPILER_PACKAGES)
def test_only_the_compiler_and_the_loader_import_tvm(package: str) -> None:
    rooms = {found.room for found in imports() if found.top == package}
    assert rooms <= COMPILER_PACKAGES[package]


def test_frameworks_are_never_imported() -> None:
    assert not [found for found in imports() if found.top in NEVER]


def test_every_package_imported_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    lines = [*project["dependencies"], *extras]
    named = [re.match(r"[\w-]+", line) for line in lines]
    declared = {match[0].replace("-", "_") for match in named if match}
    provided = {IMPORTED_AS.get(name, name) for name in declared}
    known = provided | set(sys.stdlib_module_names) | {"maxtool", FOR_CHECKERS}
    assert {found.top for found in imports()} <= known


def test_what_is_for_type_checkers_is_imported_for_them_only() -> None:
    files = {one.file for one in imports() if one.top == FOR_CHECKERS}
    assert files
    assert not [file for file in files if not is_guarded(file)]


def is_guarded(file: Path) -> bool:
    """Whether every import of what is for type checkers is for them only."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    checks = [node for node in nodes if isinstance(node, ast.If)]
    guarded = [check for check in checks if ast.unparse(check.test) == "TYPE_CHECKING"]
    inside = [statement for check in guarded for statement in check.body]
    found = [node for node in nodes if FOR_CHECKERS in (modules_of(node, alone=False) or [""])]
    return all(node in inside for node in found)


def loaded_by(*commands: list[str]) -> set[str]:
    """The top-level packages that are loaded when the commands have succeeded."""
    code = f"""
import json, sys
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


def test_inspect_and_convert_never_load_the_compiler(tmp_path: Path) -> None:
    made = str(tmp_path / "fireside.gguf")
    loaded = loaded_by(
        ["inspect-weights", str(SAMPLE)],
        ["convert", str(SAMPLE), "-o", made, "--quantize", "Q8_0"],
        ["inspect-weights", made, "--metadata"],
        ["convert", made, "-o", str(tmp_path / "back")],
    )
    assert "maxtool" in loaded
    assert not {"tvm", "tvm_ffi", "torch", "transformers"} & loaded
