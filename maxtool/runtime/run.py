#!/usr/bin/env python3
"""Run the compiled model in this folder.

As a program::

    python run.py --prompt "Once upon a time" --max-tokens 100
    python run.py --inputs x.npz --output y.npz

As a module::

    import run
    model = run.load()
    logits = model(input_ids=[[1, 2, 3]])["logits"]
    for token in model.generate(model.encode("Once upon a time"), max_tokens=100): ...
    for piece in run.Conversation(model).ask("Hello!"): ...

It needs NumPy, apache-tvm-ffi and TVM's runtime library; for text also ``tokenizers``,
for conversations ``jinja2``. Exit codes:
0 ok, 1 a file does not match its checksum, 2 usage, 3 an input or the manifest is malformed, 4 what
was asked does not fit the model, 6 the machine lacks something, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def _loader() -> Any:  # noqa: ANN401 - a package that type checkers do not find
    """The package ``loader`` of this folder.

    It gets a name of its own, so that a process may run several models, and is not compiled to
    disk, so that running a model adds no files to its folder.
    """
    name, inside = f"maxtool_loader_{os.urandom(8).hex()}", FOLDER / "loader"
    places = [str(inside)]
    spec = spec_from_file_location(name, inside / "__init__.py", submodule_search_locations=places)
    if spec is None or spec.loader is None:  # never so for a name that ends in .py
        raise ImportError(f"cannot load {inside}")
    package = sys.modules[name] = module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(package)
    except OSError as error:
        raise ImportError(f"cannot read {inside}, copy the whole folder: {error}") from None
    except ImportError as error:
        raise ImportError(f"cannot load {inside}: {error}") from None
    finally:
        sys.dont_write_bytecode = before
    return package


try:
    loader = _loader()
except ImportError as error:
    if __name__ != "__main__":
        raise
    sys.stderr.write(f"error: {error}\n")
    sys.exit(6)
except KeyboardInterrupt:
    if __name__ != "__main__":
        raise
    sys.exit(130)
Manifest, Model, State = loader.Manifest, loader.Model, loader.State
TextStream = loader.TextStream
Conversation, open_template = loader.Conversation, loader.open_template
RunError, NotVerified, BadUsage = loader.RunError, loader.NotVerified, loader.BadUsage
BadInput, DoesNotFit, MachineLacks = loader.BadInput, loader.DoesNotFit, loader.MachineLacks


def load(path: str | os.PathLike[str] | None = None, **options: Any) -> Any:  # noqa: ANN401
    """Open an artifact, a ``Model``; ``path`` is its folder, that of this file if None.

    ``options`` are those of ``loader.load``: ``device="cuda:1"``, ``check=False``, ``progress``.

    Raises:
        NotVerified: If a file is not the one that was compiled, and ``check`` is not false.
        BadInput: If the manifest is missing or malformed.
        BadUsage: If there is no such device.
        DoesNotFit: If the model was compiled for another kind of device.
        MachineLacks: If the machine has not what the model needs.
    """
    return loader.load(FOLDER if path is None else path, **options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the exit code."""
    return int(loader.main(FOLDER, argv))


if __name__ == "__main__":
    sys.exit(main())
