"""Output of ``maxtool compile``: the plan in one sentence, and the artifact as text or JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from maxtool.cli import units
from maxtool.cli.output import Output

if TYPE_CHECKING:
    from maxtool.artifact import Build, ModuleBuild, NamedGraph, Report
    from maxtool.artifact.onnx_build import OnnxBuild

    AnyBuild: TypeAlias = Build | ModuleBuild | OnnxBuild

SCHEMA = "maxtool.compile/1"
# How the sizes that an architecture tells are put into words.
SIZES = {"n_layers": "{} layers", "hidden_size": "hidden {}", "vocab_size": "vocabulary {}"}

# What to try, by an entry that says what kind of model it is.
TRIALS = {"prefill": '--prompt "Once upon a time"', "embed": '--text "Once upon a time"'}
# The same of a model that scores a text beside a query alone.
SCORED = '--query "How do stories begin?" --text "Once upon a time"'
# The same of tasks whose files need a fact: what prepares them.
FILES = {
    "image": ("image", "--image FILE"),
    "dual_encoder": ("image", '--image FILE --label "a photo of a cat" --label "a photo of a dog"'),
    "transcribe": ("speech", "--audio FILE.wav"),
}


def summary(build: AnyBuild) -> str:
    """One sentence on what the source is and how it is compiled."""
    from maxtool.artifact import Build

    return _of_recipe(build) if isinstance(build, Build) else _of_functions(build)


def _of_functions(build: ModuleBuild | OnnxBuild) -> str:
    from maxtool.artifact import ModuleBuild

    contents = build.contents
    sizes = (math.prod(storage.shape) for storage in contents.storage.values())
    dtype = f", matrices in {_types_of(build)}" if contents.dtype or contents.encodings else ""
    entries = "; ".join(
        f"{function.name}: {_signature(function)}" for function in contents.functions
    )
    kind = "module" if isinstance(build, ModuleBuild) else "ONNX model"
    return (
        f"{kind} {contents.identity['architecture']}: {units.count(sum(sizes))} parameters; "
        f"for {contents.target.label}{dtype}; {entries}"
    )


def _signature(function: NamedGraph) -> str:
    sides = (function.input_types, function.output_types)
    return " -> ".join(", ".join(f"{name} {of}" for name, of in side.items()) for side in sides)


def _of_recipe(build: Build) -> str:
    """One sentence on what the source is and how it is compiled."""
    module, facts = build.module, build.module.facts
    size = sum(weight.num_elements() for weight in module.raw_state_dict().values())
    sizes = [text.format(facts[name]) for name, text in SIZES.items() if name in facts]
    context = "" if module.context is None else f", context {module.context}"
    return (
        f"{build.plan.dialect} checkpoint, recipe {build.plan.recipe.name}: "
        f"{', '.join([*sizes, units.count(size)])} parameters; for {build.target.label}, "
        f"matrices in {_types_of(build)}{context}{_cache(build)}"
    )


def _types_of(build: AnyBuild) -> str:
    """Types of the matrices in words, the most bytes first."""
    from maxtool.artifact.weights import type_bytes

    *others, last = type_bytes(build.contents) or ["float32"]
    return f"{', '.join(others)} and {last}" if others else last


def _cache(build: Build) -> str:
    """The type of a decoder's cache, and what it takes of memory."""
    if build.kv_dtype is None:
        return ""
    size = units.binary_size(build.contents.state_bytes)
    texts = f" for {build.request.batch} texts" if build.request.batch > 1 else ""
    return f", cache in {build.kv_dtype.name} ({size}{texts})"


def show(out: Output, build: AnyBuild, report: Report | None, *, is_current: bool = False) -> None:
    """The plan, what was done, or that nothing had to be, as data."""
    if out.json_mode:
        out.data(SCHEMA, {**_as_json(build, report), "up_to_date": is_current})
        return
    if is_current:
        out.say(f"{build.request.output}: up to date")
        return
    weights = units.binary_size(build.weight_bytes)
    if report is None:
        out.say(f"would write {build.request.output}: {weights} of weights")
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
    if report.check is not None and report.check.trials.unreached:
        lengths = " and ".join(map(str, report.check.trials.unreached))
        out.note(f"not checked: what the model computes otherwise beyond {lengths} tokens")
    out.command(f"run it: {_invocation(build)}")


def _kernels(report: Report) -> Iterator[str]:
    """A line on each kernel of a GPU: what a thread and a block of it take."""
    for arch, kernels in report.kernels.items():
        for name, taken in sorted(kernels.items()):
            memory = f", {taken.stack} bytes of local memory" if taken.stack else ""
            spilled = taken.spill_stores + taken.spill_loads
            spills = f", {spilled} bytes spilled" if spilled else ""
            shared = f", {units.binary_size(taken.shared)} static shared"
            yield f"{arch} {name}: {taken.registers} registers{shared}{memory}{spills}"


def _invocation(build: AnyBuild) -> str:
    """A first command for the artifact."""
    script = shlex.quote(str(build.request.output / "run.py"))
    contents = build.contents
    entries = {function.name for function in contents.functions}
    if contents.identity["recipe"] is None:
        entry = "" if "forward" in entries else f" --entry {next(iter(contents.functions)).name}"
        return f"python {script} --inputs x.npz --output y.npz{entry}"
    if not entries & TRIALS.keys():
        return f"python {script} --info"
    if (task := contents.identity["task"]) in FILES:
        fact, trial = FILES[str(task)]
        return f"python {script} {trial if fact in contents.facts else '--info'}"
    if contents.tokenizer is None:
        return f"python {script} --ids 1,2,3"
    if "decode" in entries and "default" in contents.tokenizer.chat_templates:
        return f"python {script} --chat"
    if "pair_template" in contents.facts:
        return f"python {script} {SCORED}"
    return f"python {script} {next(trial for entry, trial in TRIALS.items() if entry in entries)}"


def _as_json(build: AnyBuild, report: Report | None) -> dict[str, object]:
    from maxtool.artifact.machine_code import described
    from maxtool.artifact.weights import type_bytes

    dtype, kv_dtype = build.contents.dtype, build.kv_dtype
    return {
        "source": _source(build, is_planned=report is None),
        "origin": dict(build.contents.origin) or None,
        "output": str(build.request.output),
        **_reading(build),
        "target": build.contents.target.manifest,
        "dtype": dtype and dtype.value,
        "matrices": type_bytes(build.contents),
        "kv_dtype": kv_dtype and kv_dtype.name,
        "context": build.contents.context,
        "batch": build.contents.facts.get("batch", 1),
        "dry_run": report is None,
        "weight_bytes": build.weight_bytes,
        "state_bytes": build.contents.state_bytes,
        "bytes": None if report is None else report.nbytes,
        "check": None if report is None or report.check is None else _check(report),
        "cpu_seconds": {} if report is None else report.seconds,
        "kernels": {} if report is None else described(report.kernels),
        "notes": build.notes,
    }


def _source(build: AnyBuild, *, is_planned: bool) -> str | None:
    """The path that was read; of a plan for what is not on this machine, its name."""
    from maxtool.artifact import ModuleBuild

    source = build.request.weights if isinstance(build, ModuleBuild) else build.request.source
    name = build.contents.origin.get("name", source) if is_planned else source
    return None if name is None else str(name)


def _reading(build: AnyBuild) -> dict[str, object]:
    """Describe how the source is read: by a recipe, or as a module declares it."""
    from maxtool.artifact import Build, ModuleBuild

    if isinstance(build, Build):
        return {"recipe": build.plan.recipe.name, "dialect": build.plan.dialect}
    return {
        "recipe": None,
        "dialect": None,
        "module": str(build.request.module) if isinstance(build, ModuleBuild) else None,
        "entries": {entry.name: _types(entry) for entry in build.contents.functions},
    }


def _types(function: NamedGraph) -> dict[str, dict[str, str]]:
    """The types of inputs and outputs, by name."""
    sides = {"inputs": function.input_types, "outputs": function.output_types}
    return {side: {name: str(of) for name, of in types.items()} for side, types in sides.items()}


def _check(report: Report) -> dict[str, object]:
    from maxtool.artifact.manifest import checked

    return {} if report.check is None else checked(report.check)
