"""One step of a build, run in a process of its own as the command line that it is."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

from maxtool.build.cluster_steps import check_same
from maxtool.build.copying import check_file, copy
from maxtool.build.executor import Sent
from maxtool.build.record import Records
from maxtool.build.step import Step
from maxtool.cli.interrupts import end_at_once
from maxtool.cli.progress import listened
from maxtool.errors import MaxtoolError
from maxtool.files import sha256, staged
from maxtool.files.content import Contents

# Kinds that are commands with an output of their own.
WRITING = ("convert", "compile")
STATE = ".maxtool-build"
# What getrusage counts memory in: bytes on macOS, KiB elsewhere.
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def run_step(folder: Path, step: Step, sender: Connection) -> None:
    """Run a step, and send what came of it; all paths are relative to the folder."""

    def send(what: Sent | str) -> None:
        with suppress(BrokenPipeError):
            sender.send(what)

    end_at_once()
    _end_with_build()
    with listened(send):
        sent = _measured_run(folder, step)
    send(sent)


def run_on_node(step: Step, asked: Mapping[str, str]) -> Sent:
    """Run a step on a node of a cluster, in the folder that it is in: what came of it.

    ``MachineLacks`` if the node would make something else of it than it was ``asked`` for.
    """
    check_same(step, asked)
    return _measured_run(Path.cwd(), step)


def _measured_run(folder: Path, step: Step) -> Sent:
    """Return what came of a step, and the most memory that this process ever had."""
    sent = _ran(folder, step)
    sent.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    return sent


def _end_with_build() -> None:
    """End this process when the build is killed: the next build would find it at its outputs.

    The fork server cannot tell: it stays until the last process that it started has ended.
    """
    if (build := parent_process()) is not None:
        Thread(target=_end_after, args=(build.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    connection.wait([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def _ran(folder: Path, step: Step) -> Sent:
    """Return what came of a step; what could not be done is an error in it."""
    from maxtool.cli.app import as_json, refused

    try:
        os.chdir(folder)
        if step.output:
            Path(step.output).parent.mkdir(parents=True, exist_ok=True)
        return _run(step)
    except MaxtoolError as error:
        return Sent(error=as_json(error))
    except OSError as error:
        return Sent(error=as_json(refused(error)))


def _run(step: Step) -> Sent:
    if step.kind == "copy":
        return _copied(step)
    if step.kind == "bench":
        check_file(Path(str(step.output)), Path(step.source))
    out, err = io.StringIO(), io.StringIO()
    from maxtool.cli.process import called
    from maxtool.weights.files_read import files_noted

    with redirect_stdout(out), redirect_stderr(err), files_noted() as read:
        code = called(command_line(step))
    result = _parsed(out.getvalue())
    if code:
        lost = {"what": "it failed", "exit_code": code, "problems": result.get("differences", [])}
        return Sent(result, error=result.get("error", lost), said=err.getvalue())
    outputs = OUTPUTS[step.kind](step, result)
    inputs = _inputs(step, read, result)
    brought = _brought(inputs)
    return Sent(result, None, err.getvalue(), inputs, outputs, brought=brought)


def command_line(step: Step) -> list[str]:
    """The arguments of the command that a step is, with what a build adds to them."""
    output = ["-o", step.output, "--force"] if step.kind in WRITING and step.output else []
    return [*step.argv, *output, "--json", "--quiet"]


def _parsed(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:  # a command that failed before it had anything to say
        return {}


def _copied(step: Step) -> Sent:
    record = Records(Path(STATE, "steps")).read(step.name)
    output = Path(step.output or "")
    copy(Path(step.source), output, {*record.outputs} if record else ())
    return Sent(inputs=_tree(step.source), outputs=_hashed(_tree(str(output))))


def _inputs(step: Step, read: Mapping[Path, None], result: Mapping[str, Any]) -> list[str]:
    """The files that a step depends on: of all recipes that were looked at, those that were used.

    What runs an artifact depends on all its files, and a check on those that were recorded too.
    """
    if step.kind not in WRITING:
        return list(dict.fromkeys([*_tree(step.source), *map(str, read)]))
    from maxtool.recipe.load import files_of, load_recipe
    from maxtool.recipe.recipe_files import RECIPE_SUFFIX, is_shipped, recipe_names

    files = [path for path in read if path.suffix != RECIPE_SUFFIX or not is_shipped(path)]
    if (recipe := result.get("recipe")) in recipe_names():
        files += files_of(load_recipe(recipe))
    return list(dict.fromkeys(map(str, files)))


def _brought(inputs: Sequence[str]) -> list[str]:
    """Inputs that came from elsewhere: those in a cache."""
    from maxtool.sources import caches

    folders = caches()
    return [path for path in inputs if any(Path(path).is_relative_to(one) for one in folders)]


def _converted(step: Step, result: Mapping[str, Any]) -> dict[str, str]:
    output = Path(str(step.output))
    folder = output if output.is_dir() else output.parent
    known = result["sha256"]
    paths = {name: str(folder / name) for name in result["files"]}
    return {path: known.get(name) or sha256(Path(path)) for name, path in paths.items()}


def _compiled(step: Step, _result: Mapping[str, Any]) -> dict[str, str]:
    folder = Path(str(step.output))
    manifest = folder / "manifest.json"
    files = json.loads(manifest.read_bytes())["files"]
    known = {str(folder / name): file["sha256"] for name, file in files.items()}
    return {**known, str(manifest): sha256(manifest)}


def _measured(step: Step, result: Mapping[str, Any]) -> dict[str, str]:
    output = Path(str(step.output))
    with staged(output) as path:
        path.write_text(json.dumps(result, indent=2) + "\n")
    return _hashed([str(output)])


OUTPUTS: Mapping[str, Callable[[Step, Mapping[str, Any]], dict[str, str]]] = {
    "convert": _converted,
    "compile": _compiled,
    "check": lambda _step, _result: {},
    "bench": _measured,
}


def _tree(path: str) -> list[str]:
    return Contents(Path(), Path(os.devnull), again=True).below(path)


def _hashed(paths: Sequence[str]) -> dict[str, str]:
    return {path: sha256(Path(path)) for path in paths}
