"""``manifest.json``: what an artifact is, for its loader and for people."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from maxtool import __version__
from maxtool.artifact import weights
from maxtool.artifact.check import PassedCheck
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.artifact.convolution_work import operations
from maxtool.errors import MachineLacks
from maxtool.graph import TensorType
from maxtool.runtime import loader
from maxtool.runtime.loader.machine import CUDA_RUNTIME, RUNTIME
from maxtool.runtime.loader.manifest import CHECKSUM, checksum
from maxtool.runtime.loader.manifest_parser import MAX_SIZE, SCHEMA
from maxtool.runtime.loader.specs import ALIGNMENT
from maxtool.weights.formats.artifact import FILE

MODULE = "model.so"
PROGRAM, LOADER = "run.py", "loader"
LIBRARIES = "lib"
# Of TVM's libraries those that an artifact of each kind runs on.
RUNTIMES = {"cpu": (RUNTIME,), "cuda": (RUNTIME, CUDA_RUNTIME)}


def describe(contents: Contents, facts: Mapping[str, object]) -> dict[str, object]:
    """Return the manifest but for files and check, in the order a reader looks for it."""
    placed, _ = weights.place(contents.storage.values())
    files = weights.files(contents.devices)
    tables = [asdict(weight) for weight in contents.tables if weight.weight in contents.storage]
    return {
        "schema": SCHEMA,
        "maxtool": __version__,
        "tvm": version("apache-tvm"),
        "tvm_ffi": version("apache-tvm-ffi"),
        **contents.identity,
        "dtype": contents.dtype and contents.dtype.value,
        "target": contents.target.manifest,
        **({"devices": contents.devices} if contents.devices > 1 else {}),
        **facts,
        "context": contents.context,
        **contents.facts,
        "module": MODULE,
        "entries": {function.name: _entry(function) for function in contents.functions},
        "state": [_buffer(*buffer, contents.positions) for buffer in contents.state.items()],
        "weights": {
            **({"file": files[0]} if len(files) == 1 else {"files": files}),
            "alignment": ALIGNMENT,
            "tensors": [one.manifest for one in placed],
        },
        **_work(contents),
        "limits": dict(contents.limits),
        "tables": tables,
        "check": {"status": "not checked"},
    }


def _work(contents: Contents) -> dict[str, object]:
    """Return the operations of the function that convolves most; nothing if none does."""
    most = max((operations(function) for function in contents.functions), default=0)
    return {"operations": min(most, MAX_SIZE)} if most else {}


def checked(passed_check: PassedCheck) -> dict[str, object]:
    """Return the manifest's record of a check that passed, or that another machine runs."""
    worst = passed_check.worst
    result: dict[str, object] = {"status": "recorded"}
    if worst is not None:
        result = {
            "status": "passed",
            "relative_error": worst.relative_error,
            "max_abs_error": worst.max_abs_error,
            "rtol": worst.rtol,
            "atol": worst.atol,
        }
    return {**result, "against": passed_check.trials.against, **passed_check.counts}


def save(folder: Path, described: Mapping[str, object]) -> None:
    """Write the manifest, with its own checksum."""
    whole = {**described, CHECKSUM: checksum(described)}
    text = json.dumps(whole, indent=1, allow_nan=False)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def copy_loader(folder: Path) -> None:
    """Copy the runtime into the artifact: ``run.py`` and the package it loads."""
    here = Path(loader.__file__).parent
    shutil.copyfile(here.parent / PROGRAM, folder / PROGRAM)
    (folder / LOADER).mkdir()
    for file in sorted(here.glob("*.py")):
        shutil.copyfile(file, folder / LOADER / file.name)


def copy_runtime(folder: Path, target_kind: str) -> None:
    """Copy TVM's runtime libraries into the artifact, which then needs no compiler package."""
    spec = find_spec("tvm")
    places = [
        Path(location) / "lib" for location in (spec and spec.submodule_search_locations) or ()
    ]
    (folder / LIBRARIES).mkdir()
    for name in RUNTIMES[target_kind]:
        present = [place / name for place in places if (place / name).is_file()]
        if not present:
            raise MachineLacks(
                f"{name} is not in the installed TVM",
                hint="install apache-tvm, or omit --standalone",
            )
        shutil.copyfile(present[0], folder / LIBRARIES / name)


def _entry(function: NamedGraph) -> dict[str, object]:
    defaults = function.defaults
    return {
        "function": function.symbol,
        "inputs": [
            _spec(name, kind) | ({"default": defaults[name]} if name in defaults else {})
            for name, kind in function.input_types.items()
        ],
        "outputs": [_spec(name, kind) for name, kind in function.output_types.items()],
        "state": bool(function.state),
        **({"least": dict(function.least)} if function.least else {}),
    }


def _buffer(name: str, tensor_type: TensorType, positions: Mapping[str, int]) -> dict[str, object]:
    """A buffer of the state, and which of its axes is that of the positions."""
    axis = {"positions": positions[name]} if name in positions else {}
    return _spec(name, tensor_type) | axis


def _spec(name: str, tensor_type: TensorType) -> dict[str, object]:
    shape = [dim.value if dim.is_static else str(dim) for dim in tensor_type.shape]
    return {"name": name, "dtype": tensor_type.dtype.value, "shape": shape}
