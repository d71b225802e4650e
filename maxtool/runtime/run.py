#!/usr/bin/env python3
"""Run the compiled model in this folder.

As a program::

    python run.py --prompt "Once upon a time" --max-tokens 100
    python run.py --prompts prompts.txt
    python run.py --audio talk.wav
    python run.py --inputs x.npz --output y.npz

As a module::

    import run
    model = run.load()
    logits = model(input_ids=[[1, 2, 3]])["logits"]
    for token in model.generate(model.encode("Once upon a time"), max_tokens=100): ...
    for result in run.generate_many(model, ["Once", "Twice"]): print(result.text)
    for piece in run.Conversation(model).ask("Hello!"): ...

It needs NumPy, apache-tvm-ffi and TVM's runtime library; for text also ``tokenizers``,
for conversations ``jinja2``, for JSON by a schema ``llguidance``. Exit codes:
0 ok, 1 a file does not match its checksum, 2 usage, 3 an input or the manifest is malformed, 4 what
was asked does not fit the model, 6 the machine lacks something, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
if __name__ == "__main__":  # starting threads is much of NumPy's import, and nothing here uses them
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# Names of the loader that are not needed to load a model: it imports them when they are used.
LATER = {
    "Completion",
    "Conversation",
    "Prompt",
    "TextStream",
    "generate_many",
    "open_template",
}


class _Source(SourceFileLoader):
    """Reader of the loader's files that leaves no bytecode beside them.

    So running a model adds no files to its folder.
    """

    def set_data(self, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Drop what Python would write."""


def _loader() -> Any:  # noqa: ANN401 - a package that type checkers do not find
    """The package ``loader`` of this folder.

    It gets a name of its own, so that a process may run several models.
    """
    name, inside = f"maxtool_loader_{os.urandom(8).hex()}", str(FOLDER / "loader")
    sys.path_importer_cache[inside] = FileFinder(inside, (_Source, SOURCE_SUFFIXES))
    file, places = os.path.join(inside, "__init__.py"), [inside]  # noqa: PTH118 - as Python has it
    reader = _Source(name, file)
    spec = spec_from_file_location(name, file, loader=reader, submodule_search_locations=places)
    if spec is None or spec.loader is None:  # never so for a reader of files
        raise ImportError(f"cannot load {inside}")
    package = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(package)
    except OSError as error:
        raise ImportError(f"cannot read {inside}, copy the whole folder: {error}") from None
    except ImportError as error:
        raise ImportError(f"cannot load {inside}: {error}") from None
    return package


@contextmanager
def _telling() -> Iterator[None]:
    """Ensure that the program ends with a line and an exit code where files are missing."""
    try:
        yield
    except ImportError as error:
        if __name__ != "__main__":
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(6)
    except KeyboardInterrupt:
        if __name__ != "__main__":
            raise
        sys.exit(130)


with _telling():
    loader = _loader()
Manifest, Model, State = loader.Manifest, loader.Model, loader.State
RunError, NotVerified, BadUsage = loader.RunError, loader.NotVerified, loader.BadUsage
Sampling = loader.Sampling
BadInput, DoesNotFit, MachineLacks = loader.BadInput, loader.DoesNotFit, loader.MachineLacks


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Hand on what the loader imports late."""
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(loader, name)


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
    with _telling():
        return int(loader.main(FOLDER, argv))


if __name__ == "__main__":
    sys.exit(main())
