"""``maxtool build``: the targets of a file, where they are not up to date."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxtool.cli import options, units
from maxtool.cli.interrupts import INTERRUPTED
from maxtool.cli.output import Output
from maxtool.cli.progress import CLEAR
from maxtool.cli.spreading import ExecutorName, RayAddress, check_executor
from maxtool.errors import MaxtoolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from maxtool.build.building import Limits, Outcome
    from maxtool.build.executor import Executor
    from maxtool.build.step import Kind, OptionForm

SCHEMA = "maxtool.build/1"
MEMORY = Path("/proc/meminfo")
# Options of commands that a build gives, or that have no place in one.
NOT_KEYS = frozenset(
    {
        *("json", "quiet", "verbose", "no-color", "help", "dry-run", "output", "force"),
        *("html", "profile", "markdown", "if-changed", "shards", "executor", "ray-address"),
    }
)


def build(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="What to build, and how.")],
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET]...", help="Only these, and what they depend on."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another value of a variable."),
    ] = None,
    dry_run: Annotated[
        bool, options.flag("--dry-run", "-n", help="Say what would run, and why; run nothing.")
    ] = False,
    keep_going: Annotated[
        bool,
        options.flag("--keep-going", "-k", help="After a failure, run what does not depend on it."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, metavar="N", help="Steps side by side; one per core if absent."
        ),
    ] = None,
    only: Annotated[
        bool, options.flag("--only", help="Run the targets that are named, and nothing before.")
    ] = False,
    force: Annotated[bool, options.flag("--force", help="Run what is up to date, too.")] = False,
    rehash: Annotated[
        bool, options.flag("--rehash", help="Hash every file, whether it seems changed or not.")
    ] = False,
    executor: ExecutorName = None,
    ray_address: RayAddress = None,
) -> None:
    """Build the targets of a file that are not up to date, side by side where they may."""
    from maxtool.build.building import Building
    from maxtool.build.record import Records
    from maxtool.build.steps import read_steps, selected
    from maxtool.cli.build_worker import STATE
    from maxtool.files.content import Contents

    began = time.monotonic()
    check_executor(executor, ray_address)
    kinds = _kinds()
    if only and not targets:
        raise UsageError("--only is for targets that are named")
    steps = selected(read_steps(file, kinds, _variables(set_ or [])), targets or [], only=only)
    state = file.absolute().parent / STATE
    if not dry_run:
        state.mkdir(exist_ok=True)
    contents = Contents(state.parent, state / "hashes.json", again=rehash)
    width = max(len(step.name) for step in steps)
    is_there = executor is not None and not dry_run
    notes: dict[str, str] = {}
    here = _here(state, jobs, notes)
    where = _on_cluster(out, ray_address, state.parent, jobs) if is_there else here
    with _told_of_interrupts(out), where as (runner, limits), out.progress("building") as meter:
        work = Building(steps, kinds, contents, Records(state / "steps"), runner)
        meter.stage("building", len(steps), "target")
        meter.detail = lambda: ", ".join(f"{name}: {line}" for name, line in sorted(notes.items()))

        def tell(outcome: Outcome) -> None:
            meter(1)
            notes.pop(outcome.step.name, None)
            _tell(out, outcome, kinds, width)

        outcomes = work.run(limits, tell, force=force, dry_run=dry_run, keep_going=keep_going)
    _end(out, file, outcomes, time.monotonic() - began)


@contextmanager
def _here(
    state: Path, jobs: int | None, notes: dict[str, str]
) -> Iterator[tuple[Executor, Limits]]:
    """Yield what runs steps on this machine, in processes that import the compiler once.

    ``notes`` has how far each step is.
    """
    from multiprocessing import get_context

    from maxtool.build.building import Limits
    from maxtool.build.processes import Processes
    from maxtool.cli.build_worker import run_step

    get_context("forkserver").set_forkserver_preload(["maxtool.cli.build_preload"])
    yield Processes(state.parent, run_step, notes.__setitem__), Limits(jobs or _cores(), _memory())


@contextmanager
def _on_cluster(
    out: Output, address: str | None, folder: Path, jobs: int | None
) -> Iterator[tuple[Executor, Limits]]:
    """Yield what runs steps on a cluster, which itself sees that each has a core and its memory."""
    from maxtool.build.building import Limits
    from maxtool.build.cluster_steps import ClusterSteps
    from maxtool.cli.app import as_json, refused
    from maxtool.cli.build_worker import run_on_node
    from maxtool.cluster import Tasks, connected

    def told(error: MaxtoolError | OSError | MemoryError) -> Mapping[str, object]:
        return as_json(error if isinstance(error, MaxtoolError) else refused(error))

    with connected(address):
        tasks = Tasks(out.warn, folder)
        yield ClusterSteps(tasks, run_on_node, told), Limits(jobs or max(tasks.cores, 1), 1 << 62)


@contextmanager
def _told_of_interrupts(out: Output) -> Iterator[None]:
    """End at an interrupt with a word on what is there: the steps that ended, and no others."""
    try:
        yield
    except KeyboardInterrupt:
        out.warn("interrupted; what was done stays, and the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None


def _kinds() -> dict[str, Kind]:
    """The kinds of targets, with the options of the commands that they are."""
    from maxtool.build.step import Kind

    return {
        "convert": Kind("convert", "converted", _forms("convert"), takes_urls=True),
        "compile": Kind(
            "compile", "compiled", _forms("compile"), takes_urls=True, base_bytes=1 << 30
        ),
        "check": Kind("verify", "checked", _forms("verify"), has_output=False),
        "bench": Kind("bench", "measured", _forms("bench"), is_alone=True),
        "copy": Kind("copy", "copied", {}),
    }


def _forms(command: str) -> dict[str, OptionForm]:
    """The options of a command, by what they are called without their dashes."""
    from maxtool.build.step import OptionForm
    from maxtool.cli.app import app
    from maxtool.cli.optional_values import VALUES

    root: Any = typer.main.get_command(app)
    forms = {}
    for parameter in root.commands[command].params:
        longest = max(parameter.opts, key=len)
        name = longest.removeprefix("--")
        if longest.startswith("--") and name not in NOT_KEYS:
            off = next(iter(parameter.secondary_opts), None)
            bare = longest in VALUES
            forms[name] = OptionForm(longest, off, parameter.is_flag, bare, parameter.multiple)
    return forms


def _variables(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if wrong := [name for name, equals, _ in pairs if not equals or not name]:
        raise UsageError(f"--set {wrong[0]!r:.80} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int:
    """The bytes of memory that are free; as many as there are addresses where nothing tells."""
    try:
        lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        return 1 << 62


def _tell(out: Output, outcome: Outcome, kinds: Mapping[str, Kind], width: int) -> None:
    """One line on a step; of one that failed also what was wrong."""
    if out.json_mode:
        return
    if not out.quiet and sys.stderr.isatty():  # where progress is drawn
        sys.stderr.write(CLEAR)
        sys.stderr.flush()
    for line in outcome.said.splitlines() if outcome.error is None else ():
        out.note(f"{outcome.step.name}: {line}")
    if not (out.quiet and outcome.status == "up to date"):
        out.text(f"{outcome.step.name:{width}}  {_said(outcome, kinds[outcome.step.kind])}")
    if outcome.error is not None:
        out.error(_error(outcome))


def _said(outcome: Outcome, kind: Kind) -> str:
    record = outcome.record
    if outcome.status == "done" and record is not None:
        size = f"  {units.binary_size(record.nbytes)}" if kind.has_output else ""
        return f"{kind.done}  {record.seconds:.1f} s{size}"
    return f"{outcome.status}: {outcome.why}" if outcome.why else outcome.status


def _error(outcome: Outcome) -> Any:  # noqa: ANN401 - an error with the exit code of another
    told = outcome.error or {}
    fields = ("file", "tensor", "offset", "hint", "problems")
    error = MaxtoolError(str(told["what"]), **{key: told[key] for key in fields if told.get(key)})
    error.exit_code = told["exit_code"]
    return error


def _end(out: Output, file: Path, outcomes: Sequence[Outcome], seconds: float) -> None:
    """Sum up, and end with the exit code of the first step that failed."""
    failed = [one for one in outcomes if one.status == "failed"]
    if out.json_mode:
        steps = [_as_json(one) for one in outcomes]
        content = {"file": str(file), "ok": not failed, "seconds": round(seconds, 3)}
        out.data(SCHEMA, {**content, "steps": steps})
    else:
        statuses = [one.status for one in outcomes]
        counts = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
        summed = ", ".join(f"{count} {status}" for status, count in counts.items())
        out.say(f"{units.plural(len(outcomes), 'target')}: {summed}; {seconds:.1f} s")
    if failed:
        raise typer.Exit(_error(failed[0]).exit_code)


def _as_json(outcome: Outcome) -> dict[str, object]:
    from maxtool.build.record import printed_words
    from maxtool.cli.build_worker import command_line

    step, is_there = outcome.step, outcome.status in ("done", "up to date")
    record = outcome.record if is_there else None
    return {
        "name": step.name,
        "kind": step.kind,
        "status": outcome.status,
        "why": outcome.why or None,
        "argv": printed_words(command_line(step)),
        "after": list(step.after),
        "output": step.output,
        "seconds": None if record is None else round(record.seconds, 3),
        "bytes": None if record is None else record.nbytes,
        "peak_bytes": None if record is None else record.peak_bytes,
        "sha256": {} if record is None else dict(record.outputs),
        "said": outcome.said.splitlines(),
        "error": outcome.error,
    }
