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

import atexit
import hashlib
import marshal
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.util import MAGIC_NUMBER, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType
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


# Of a compiled file that others may write to, nothing is run.
OTHERS_MAY_WRITE = 0o022


class _Source(SourceFileLoader):
    """Reader of the loader's files that leaves no bytecode beside them, but in the user's cache.

    So running a model adds no files to its folder, and artifacts share what was compiled: a file
    of the cache is named after the source, and after the Python that compiled it.
    """

    def get_code(self, _fullname: str) -> CodeType:
        """The code of the file, compiled unless the cache has it."""
        source = self.get_data(self.path)
        place = _place(source)
        if (kept := _kept(place)) is not None:
            return kept
        name = os.path.basename(self.path)  # noqa: PTH119
        code: CodeType = self.source_to_code(source, f"loader/{name}")  # true of each artifact
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                _keep(place, code)
        return code


def _place(source: bytes) -> str:
    """The path in the user's cache at which the code of a source is kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # noqa: PTH117 - what is not, is to be ignored (XDG)
        base = os.path.expanduser("~/.cache")  # noqa: PTH111
    which = b"%s %d %s" % (MAGIC_NUMBER, sys.flags.optimize, source)
    return f"{base}/maxtool/bytecode/{hashlib.sha256(which).hexdigest()}.{sys.implementation.name}"


def _kept(path: str) -> CodeType | None:
    """The code that this user alone keeps at a path; None if there is none."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            status = os.fstat(stream.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & OTHERS_MAY_WRITE:
                return None
            code = marshal.loads(stream.read())  # noqa: S302 - written by this user
    except (OSError, EOFError, ValueError, TypeError):
        return None
    return code if isinstance(code, CodeType) else None


def _keep(path: str, code: CodeType) -> None:
    """Put code in its place, whole or not at all, where this user alone may write it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
    scratch = f"{path}.{os.urandom(8).hex()}"
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(file, "wb") as stream:  # noqa: PTH123
            stream.write(marshal.dumps(code))
        os.replace(scratch, path)  # noqa: PTH105
    except OSError:
        os.unlink(scratch)  # noqa: PTH108
        raise


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


def _end_at_once(codes: list[int]) -> None:
    """End the process with the code that the program gave, if it came so far.

    The system frees all memory at once, where Python would take apart every module, and the runtime
    wait for each of its threads.
    """
    with suppress(OSError, ValueError):  # Python tells of a stream that cannot be written
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if codes:
            os._exit(codes[0])


if __name__ == "__main__":
    codes: list[int] = []
    atexit.register(_end_at_once, codes)  # behind all that is registered later
    codes.append(main())
    sys.exit(codes[0])
