"""``manifest.json``: what an artifact is, for its loader and for people."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from maxtool import __version__
from maxtool.architectures import Architecture, Entry
from maxtool.artifact.check import Checked
from maxtool.artifact.weights import ALIGNMENT, Placed
from maxtool.artifact.weights import FILE as WEIGHTS
from maxtool.errors import MachineLacks
from maxtool.graph import Graph, TensorType
from maxtool.runtime import loader
from maxtool.runtime.loader import RUNTIME, SCHEMA

FILE = "manifest.json"
MODULE = "model.so"
PROGRAM, LOADER = "run.py", "loader"
LIBRARIES = "lib"


def describe(
    module: Architecture,
    entries: Mapping[Entry, Graph],
    placed: Sequence[Placed],
    facts: Mapping[str, object],
) -> dict[str, object]:
    """Everything but the files and the check, in the order a reader looks for it.

    Args:
        module: What was compiled.
        entries: Its functions, and what each was traced to.
        placed: Its weights, in the order of the file.
        facts: Name, recipe, architecture, dtype, target, tokenizer and sources.
    """
    state = next((entry.state for entry in entries if entry.state), {})
    return {
        "schema": SCHEMA,
        "maxtool": __version__,
        "tvm": version("apache-tvm"),
        "tvm_ffi": version("apache-tvm-ffi"),
        **facts,
        "context": module.context,
        **module.facts,
        "module": MODULE,
        "entries": {entry.name: _entry(entry, graph) for entry, graph in entries.items()},
        "state": [_spec(name, kind) for name, kind in state.items()],
        "weights": {
            "file": WEIGHTS,
            "alignment": ALIGNMENT,
            "tensors": [one.manifest for one in placed],
        },
        "limits": dict(module.limits),
        "check": {"status": "not checked"},
    }


def checked(found: Checked) -> dict[str, object]:
    """What the manifest says of a check that was passed, or is left to where the model runs."""
    worst = found.worst
    result: dict[str, object] = {"status": "recorded"}
    if worst is not None:
        result = {
            "status": "passed",
            "relative_error": worst.relative_error,
            "max_abs_error": worst.max_abs_error,
            "rtol": worst.rtol,
            "atol": worst.atol,
        }
    return {
        **result,
        "reference": "numpy float64",
        "tokens": found.tokens,
        "unreached": found.unreached,
    }


def is_artifact(folder: Path) -> bool:
    """Whether a folder holds the manifest of an artifact, of whatever version."""
    try:
        found = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    schema = found.get("schema") if isinstance(found, dict) else None
    return isinstance(schema, str) and schema.partition("/")[0] == SCHEMA.partition("/")[0]


def copy_loader(folder: Path) -> None:
    """Put what runs the model into the artifact: ``run.py`` and the package it loads."""
    here = Path(loader.__file__).parent
    shutil.copyfile(here.parent / PROGRAM, folder / PROGRAM)
    (folder / LOADER).mkdir()
    for file in sorted(here.glob("*.py")):
        shutil.copyfile(file, folder / LOADER / file.name)


def copy_runtime(folder: Path) -> None:
    """Put TVM's runtime library into the artifact, so that it runs without the compiler package.

    Raises:
        MachineLacks: If the installed TVM has no such library.
    """
    spec = find_spec("tvm")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(place) / "lib" / RUNTIME for place in places]
    library = next((path for path in found if path.is_file()), None)
    if library is None:
        raise MachineLacks(
            f"{RUNTIME} is not in the installed TVM",
            hint="install apache-tvm, or omit --standalone",
        )
    (folder / LIBRARIES).mkdir()
    shutil.copyfile(library, folder / LIBRARIES / RUNTIME)


def _entry(entry: Entry, graph: Graph) -> dict[str, object]:
    outputs = zip(entry.outputs, graph.outputs, strict=True)
    return {
        "function": entry.name,
        "inputs": [_spec(name, kind) for name, kind in entry.inputs.items()],
        "outputs": [_spec(name, value.type) for name, value in outputs],
        "state": bool(entry.state),
    }


def _spec(name: str, kind: TensorType) -> dict[str, object]:
    shape = [dim.value if dim.is_static else str(dim) for dim in kind.shape]
    return {"name": name, "dtype": kind.dtype.value, "shape": shape}
