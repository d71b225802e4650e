"""An entry run on the arrays of a file."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from .archive import read_arrays
from .errors import BadInput, BadUsage
from .inputs import check_shapes
from .opening import open_model
from .options import CommonOptions
from .terminal import emit, emit_json, note, printable
from .written_arrays import write_arrays


def run_arrays(options: CommonOptions, path: Path) -> None:
    """Run an entry on the arrays of an npz file and write its outputs to another."""
    check_output(options)
    model = open_model(options)
    entry = model.entry(options.entry)
    names = [spec.name for spec in entry.inputs]
    arrays, ignored = read_arrays(path, names, partial(check_shapes, model.manifest, entry))
    started = time.perf_counter()
    try:
        outputs = model.run(options.entry, arrays)
    except BadInput as error:
        error.file = error.file or str(path)
        raise
    seconds = time.perf_counter() - started
    if ignored:
        note(options, f"ignored, as {options.entry} does not take it: {', '.join(ignored)}")
    if options.output is not None:
        write_arrays(options.output, outputs)
    shapes = {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in outputs.items()}
    if options.json:
        facts = {"output": str(options.output or ""), "seconds": seconds}
        content = {"entry": options.entry, "outputs": shapes, "ignored": ignored, **facts}
        emit_json("maxtool.run/1", content)
        return
    for name, array in outputs.items():
        emit(f"{printable(name)} {array.dtype}{list(array.shape)}\n")
    note(options, f"{options.entry} took {seconds * 1000:.2f} ms")


def check_output(options: CommonOptions) -> None:
    """Refuse an output that cannot or must not be written, before any work is done."""
    output = options.output
    if output is None:
        return
    if not output.resolve().parent.is_dir():
        raise BadUsage("the folder of the output does not exist", file=output)
    if output.is_dir() or (options.inputs and output.resolve() == options.inputs.resolve()):
        raise BadUsage("this cannot be the output", file=output)
    if os.path.lexists(output) and not options.force:
        raise BadUsage("the output exists", file=output, hint="--force replaces it")
