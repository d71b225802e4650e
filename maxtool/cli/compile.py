"""``maxtool compile``: a checkpoint as a folder that runs on its own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import complete, options, units
from maxtool.cli.output import Output

if TYPE_CHECKING:
    from maxtool.artifact import Build, Report

SCHEMA = "maxtool.compile/1"
# How the sizes that an architecture tells are put into words.
SIZES = {"n_layers": "{} layers", "hidden_size": "hidden {}", "vocab_size": "vocabulary {}"}

# What to try, by an entry that says what kind of model it is.
TRIALS = {"prefill": '--prompt "Once upon a time"', "embed": '--text "Once upon a time"'}


def compile(  # noqa: A001 - the command's name
    out: Output,
    source: options.Source,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to make.")
    ],
    recipe: options.Recipe = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="cpu for this machine, cpu:NAME (cpu:x86-64-v3), cuda for the GPU here, or "
            "architectures of GPUs (cuda:sm_80,sm_90), which need none here.",
            metavar="TARGET",
            autocompletion=complete.one_of("cpu", "cuda"),
        ),
    ] = "cpu",
    devices: Annotated[
        int,
        typer.Option(
            "--devices",
            metavar="N",
            help="How many such devices run the model together, each with a part.",
        ),
    ] = 1,
    ptx: Annotated[
        bool, options.flag("--ptx", help="With cuda: PTX too, which newer GPUs translate.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="How matrices are stored: float32, float16 or bfloat16; sums are float32. "
            "The source's own if absent; for quantized ones float32, on GPUs float16.",
            metavar="TYPE",
            autocompletion=complete.one_of(*options.DTYPES),
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            metavar="N",
            help="Positions to make room for; the model's own if absent, at most 131072.",
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling",
            metavar="KIND",
            help="How an encoder makes one vector: mean, cls or max; else its own.",
            autocompletion=complete.one_of(*options.POOLINGS),
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Scale that vector to length 1, or not; else its own.",
        ),
    ] = None,
    check: Annotated[
        bool, options.flag("--check", help="Compare the outputs with the graph in float64.")
    ] = False,
    standalone: Annotated[
        bool, options.flag("--standalone", help="Put TVM's runtime library into the folder.")
    ] = False,
    name: options.Name = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    ignore_config: options.IgnoreConfig = None,
) -> None:
    """Compile a checkpoint into a folder that runs without a framework."""
    from maxtool import artifact

    request = artifact.Request(
        source=options.local_source(source),
        output=options.local_output(output),
        recipe=None if recipe is None else options.local_recipe(recipe),
        target=target,
        devices=devices,
        ptx=ptx,
        dtype=options.parse_dtype(dtype),
        context=context,
        pooling=options.parse_pooling(pooling),
        normalize=normalize,
        check=check,
        standalone=standalone,
        force=force,
        ignore=frozenset(ignore_config or ()),
        name=name,
    )
    made = artifact.prepare(request)
    out.note(_found(made))
    for note in made.notes:
        out.note(note)
    report = None
    if not dry_run:
        with out.progress("compiling") as advance:
            report = artifact.make(made, advance)
    _show(out, made, report)


def _found(made: Build) -> str:
    """One sentence on what the source is and how it is compiled."""
    module, facts = made.module, made.module.facts
    size = sum(weight.num_elements() for weight in module.raw_state_dict().values())
    sizes = [text.format(facts[name]) for name, text in SIZES.items() if name in facts]
    context = "" if module.context is None else f", context {module.context}"
    return (
        f"{made.plan.dialect} checkpoint, recipe {made.plan.recipe.name}: "
        f"{', '.join([*sizes, units.count(size)])} parameters; for {made.target.label}, "
        f"matrices in {made.dtype.value}{context}"
    )


def _show(out: Output, made: Build, report: Report | None) -> None:
    """The plan, or what was done, as data."""
    if out.json_mode:
        out.data(SCHEMA, _as_json(made, report))
        return
    weights = units.binary_size(made.weight_bytes)
    if report is None:
        out.say(f"would write {made.request.output}: {weights} of weights")
        return
    if out.verbose:
        stages = ", ".join(f"{stage} {value:.2f}" for stage, value in report.seconds.items())
        out.note(f"CPU seconds: {stages}")
        for line in _kernels(report):
            out.note(line)
    checked = "not checked" if report.check is None else str(report.check)
    size = units.binary_size(report.nbytes)
    out.say(f"wrote {report.output}: {size}, {weights} of weights; {checked}")
    if report.check is not None and not report.check.is_verified:
        out.note("the recipe itself was not verified; try --check transformers")
    if report.check is not None and report.check.unreached:
        lengths = " and ".join(map(str, report.check.unreached))
        out.note(f"not checked: what the model computes otherwise beyond {lengths} tokens")
    out.command(f"run it: {_invocation(made)}")


def _kernels(report: Report) -> Iterator[str]:
    """A line on each kernel of a GPU: what a thread and a block of it take."""
    for arch, kernels in report.kernels.items():
        for name, taken in sorted(kernels.items()):
            memory = f", {taken.stack} bytes of local memory" if taken.stack else ""
            spilled = taken.spill_stores + taken.spill_loads
            spills = f", {spilled} bytes spilled" if spilled else ""
            shared = f", {units.binary_size(taken.shared)} static shared"
            yield f"{arch} {name}: {taken.registers} registers{shared}{memory}{spills}"


def _invocation(made: Build) -> str:
    """A first command for what was made."""
    script = shlex.quote(str(made.request.output / "run.py"))
    entries = {entry.name for entry in made.graphs}
    if not entries & TRIALS.keys():
        return f"python {script} --info"
    if made.tokenizer is None:
        return f"python {script} --ids 1,2,3"
    if "decode" in entries and "default" in made.tokenizer.chat_templates:
        return f"python {script} --chat"
    return f"python {script} {next(trial for entry, trial in TRIALS.items() if entry in entries)}"


def _as_json(made: Build, report: Report | None) -> dict[str, object]:
    from maxtool.artifact.code import described

    return {
        "source": str(made.request.source),
        "output": str(made.request.output),
        "recipe": made.plan.recipe.name,
        "dialect": made.plan.dialect,
        "target": made.target.manifest,
        "dtype": made.dtype.value,
        "context": made.module.context,
        "dry_run": report is None,
        "weight_bytes": made.weight_bytes,
        "bytes": None if report is None else report.nbytes,
        "check": None if report is None or report.check is None else _check(report),
        "cpu_seconds": {} if report is None else report.seconds,
        "kernels": {} if report is None else described(report.kernels),
        "notes": made.notes,
    }


def _check(report: Report) -> dict[str, object]:
    from maxtool.artifact.manifest import checked

    return {} if report.check is None else checked(report.check)
