"""Results of ``maxtool bench``: as tables, as Markdown, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maxtool.cli import tables, units
from maxtool.cli.output import Output, printable

if TYPE_CHECKING:
    from maxtool.benchmark.results import Benchmark, Benchmarked, KernelShare, Measured
    from maxtool.benchmark.samples import Samples

SCHEMA = "maxtool.bench/1"
# What the first result of a model is, by its task.
FIRST = {"generate": "first token", "embed": "first vector"}
# Rows of a profile; what the other kernels take is one more.
MOST_KERNELS = 12
ALIGNMENTS = {"left": ":---", "right": "---:"}
EMPTY = "-"


@dataclass(frozen=True)
class Sheet:
    """A table: its columns, and its rows, whose first cells are names of folders."""

    columns: Sequence[tables.Column]
    rows: Sequence[Sequence[str]]


def show(out: Output, benchmark: Benchmark, *, markdown: bool) -> None:
    """Print the results."""
    if out.json_mode:
        out.data(SCHEMA, benchmark.as_json)
        return
    draw = _draw_markdown if markdown else _draw
    profiles = [*_profiles(benchmark)]
    draw(out, [*_sentences(benchmark)], [_loading(benchmark), _speed(benchmark), *profiles])


def _draw(out: Output, sentences: Sequence[str], sheets: Sequence[Sheet]) -> None:
    for sentence in sentences:
        out.say(sentence)
    for sheet in sheets:
        tables.draw_names(out, sheet.columns, sheet.rows)


def _draw_markdown(out: Output, sentences: Sequence[str], sheets: Sequence[Sheet]) -> None:
    for sentence in sentences:
        out.text(f"- {_escaped(sentence)}")
    for sheet in sheets:
        out.gap()
        out.text(_line(header for header, _ in sheet.columns))
        out.text(_line(ALIGNMENTS[side] for _, side in sheet.columns))
        for row in sheet.rows:
            out.text(_line(map(_escaped, row)))


def _line(cells: Iterator[str] | map[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text without what Markdown might take for its own."""
    return "".join(f"\\{char}" if char in "\\|*_`<[" else char for char in printable(text))


def _sentences(benchmark: Benchmark) -> Iterator[str]:
    """Yield what the figures were measured on, and which instructions the code has."""
    machine = benchmark.machine
    read = _with_spread(machine.read, lambda value: f"{_giga(value)} GB/s")
    peaks = [
        f"{_with_spread(samples, lambda value: f'{_giga(value)} Gop/s')} in {name}"
        for name, samples in machine.peaks.items()
    ]
    threads = units.plural(machine.threads, "thread")
    told = f"{machine.name}, {_instructions(machine.target)}, {threads}"
    yield f"{told}: reads {read}, peak {' and '.join(peaks)}"
    for artifact in benchmark.artifacts:
        root = artifact.manifest.root
        types = root.get("dtype") or " ".join(artifact.encodings)
        facts = [root.get("name"), types, _instructions(artifact.target)]
        threads = units.plural(int(artifact.threads.median), "thread")
        yield f"{artifact.folder}: {', '.join(str(fact) for fact in [*facts, threads] if fact)}"


def _instructions(target: Mapping[str, object]) -> str:
    """A processor as compilers name it, and its instruction sets that matter."""
    features = target.get("features")
    listed = " ".join(map(str, features)) if isinstance(features, list) else ""
    return f"{target.get('cpu')} ({listed})" if listed else str(target.get("cpu"))


def _loading(benchmark: Benchmark) -> Sheet:
    """Loading, the first result, and memory."""
    tasks = [artifact.manifest.task for artifact in benchmark.artifacts]
    firsts = dict.fromkeys(FIRST[task] for task in tasks if task in FIRST)
    first = " or ".join(firsts)
    headers = ["load", "checksums", *([first] if first else []), "anonymous", "mapped"]
    rows = [_loaded(artifact, has_first=bool(first)) for artifact in benchmark.artifacts]
    return Sheet([("artifact", "left"), *((header, "right") for header in headers)], rows)


def _loaded(artifact: Benchmarked, *, has_first: bool) -> list[str]:
    timed = [artifact.load, artifact.checksums, *([artifact.first] if has_first else [])]
    memory = [artifact.memory.get(name) for name in ("anonymous", "mapped")]
    return [
        str(artifact.folder),
        *(_with_spread(samples, units.duration) for samples in timed),
        *(units.binary_size(int(one.median)) if one else EMPTY for one in memory),
    ]


def _speed(benchmark: Benchmark) -> Sheet:
    """Units a second, and shares of what the machine can do."""
    pairs = [(artifact, case) for artifact in benchmark.artifacts for case in artifact.cases]
    names = sorted({f"{measured.case.unit}s" for _, measured in pairs})
    headers = [f"{' or '.join(names)}/s", "", "bytes", "of read", "ops", "of peak"]
    columns = [("artifact", "left"), ("case", "left"), *((header, "right") for header in headers)]
    return Sheet(columns, [_measured(artifact, measured) for artifact, measured in pairs])


def _measured(artifact: Benchmarked, measured: Measured) -> list[str]:
    work, rate = measured.case.work, measured.rate
    size = EMPTY if work is None else units.binary_size(round(work.bytes))
    operations = None if work is None else work.operations
    return [
        str(artifact.folder),
        measured.case.label,
        units.rate(rate.median),
        _spread(rate),
        size,
        _share(measured.of_read),
        EMPTY if operations is None else units.count(round(operations)),
        _share(measured.of_peak),
    ]


def _profiles(benchmark: Benchmark) -> Iterator[Sheet]:
    """A table of kernels for each case, where they were timed."""
    several = len(benchmark.artifacts) > 1
    for artifact in benchmark.artifacts:
        for measured in artifact.cases:
            title = measured.case.label
            yield from _profile(f"{artifact.folder} {title}" if several else title, measured)


def _profile(title: str, measured: Measured) -> Iterator[Sheet]:
    if measured.profile is None:
        return
    whole, kernels = measured.profile.seconds, measured.profile.kernels
    rows = [_kernel(kernel, whole) for kernel in kernels[:MOST_KERNELS]]
    if rest := kernels[MOST_KERNELS:]:
        seconds = sum(kernel.seconds for kernel in rest)
        calls = sum(kernel.calls for kernel in rest)
        rows.append([f"{len(rest)} others", "", *_timed(calls, seconds, whole), ""])
    rows.append(["between kernels", "", *_timed(0, measured.profile.between, whole), ""])
    headers = ["calls", "time", "share", "GB/s"]
    columns = [(title, "left"), ("weights", "left"), *((header, "right") for header in headers)]
    yield Sheet(columns, rows)


def _kernel(kernel: KernelShare, whole: float) -> list[str]:
    speed = _giga(kernel.bytes / kernel.seconds) if kernel.bytes else ""
    return [
        kernel.kernel,
        kernel.weights.replace("layers.*.", "").replace(".weight", ""),
        *_timed(kernel.calls, kernel.seconds, whole),
        speed,
    ]


def _timed(calls: float, seconds: float, whole: float) -> list[str]:
    return [
        f"{calls:.3g}" if calls else "",
        units.duration(seconds),
        units.percent(seconds / whole),
    ]


def _share(samples: Samples) -> str:
    return units.percent(samples.median) if samples.values else EMPTY


def _with_spread(samples: Samples, written: Callable[[float], str]) -> str:
    """A median and how far the rounds lie apart; nothing where there is no figure."""
    if not samples.values:
        return EMPTY
    return f"{written(samples.median)} {_spread(samples)}".rstrip()


def _spread(samples: Samples) -> str:
    """The deviation in percent; of a single round there is none."""
    return f"±{units.percent(samples.spread)}" if len(samples.values) > 1 else ""


def _giga(value: float) -> str:
    return units.rate(value / 1e9)
