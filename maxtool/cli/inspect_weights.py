"""``maxtool inspect-weights``: what checkpoints hold, and what differs between two."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import options, units
from maxtool.cli.inspect import as_json, difference, graph_table, overview, payloads
from maxtool.cli.output import Output
from maxtool.cli.pages.page_file import Page
from maxtool.errors import NegativeAnswer, UsageError

if TYPE_CHECKING:
    from maxtool.weights.inspection import Inspection, Questions
    from maxtool.weights.opened_checkpoint import OpenedCheckpoint

SCHEMA = "maxtool.inspect-weights/1"
SEVERAL = "maxtool.inspect-several/1"


def inspect_weights(
    out: Output,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Checkpoints: folders, files or indexes of shards; URLs; compiled models.",
        ),
    ],
    metadata: Annotated[
        bool, options.flag("--metadata", help="Show the file's key/values and its config.json too.")
    ] = False,
    graph: Annotated[
        bool, options.flag("--graph", help="Of an ONNX model: its operators, inputs and outputs.")
    ] = False,
    flat: Annotated[bool, options.flag("--flat", help="One line per tensor, no tree.")] = False,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Levels of the tree to show.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--filter", metavar="GLOB", help="Only tensors whose whole name matches."),
    ] = None,
    stats: Annotated[
        bool, options.flag("--stats", help="Read all values: range, mean, deviation, zeros, NaN.")
    ] = False,
    values: Annotated[
        list[str] | None,
        typer.Option("--values", metavar="NAME", help="Show values: 'NAME', 'NAME[0:8, -1]'."),
    ] = None,
    sha256: Annotated[
        bool, options.flag("--sha256", help="Checksums of the files and of each tensor.")
    ] = False,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff",
            metavar="OTHER",
            help="Compare names, types and shapes, with --stats values too; exit 1 if they differ.",
        ),
    ] = None,
    html: options.Html = None,
    force: options.Force = False,
) -> None:
    """Show the tensors of checkpoints: names, types, shapes, sizes. Reads headers only."""
    from maxtool.weights.inspection import Questions

    page = Page(html, force)
    page.check([*paths, *([] if diff is None else [diff])])
    question = Questions(pattern, stats, sha256, tuple(values or ()), histograms=page.wanted)
    if diff is not None:
        _compare(out, paths, diff, question, page)
        return
    if page.wanted and len(paths) > 1:
        raise UsageError("--html draws one PATH")
    inspections = [_inspect(out, path, question) for path in paths]
    if page.wanted:
        _draw(inspections[0], page)
    if out.json_mode:
        _print_json(out, inspections, metadata=metadata, graph=graph)
        return
    for index, inspection in enumerate(inspections):
        if index:
            out.text("")
        _show(out, inspection, flat=flat, depth=depth, metadata=metadata)
        if graph:
            graph_table.show(out, graph_table.described(inspection.opened))


def _open(out: Output, path: str) -> OpenedCheckpoint:
    from maxtool.recipe.dense_modules import with_folders
    from maxtool.sources import open_named

    opened = open_named(path)
    if opened.remote is None and opened.checkpoint.path.is_dir():
        opened = replace(opened, checkpoint=with_folders(opened.checkpoint))
    for note in opened.checkpoint.notes:
        out.warn(note)
    if opened.remote is not None:
        size = units.binary_size(opened.remote.nbytes)
        requests = units.plural(opened.remote.requests, "request")
        commit = f" of commit {opened.commit}" if opened.commit else ""
        out.note(f"{opened.location}: {size}{commit} read in {requests}")
    return opened


def _inspect(out: Output, path: str, question: Questions) -> Inspection:
    from maxtool.weights.inspection import inspect

    return inspect(_open(out, path), question, out.progress)


def _draw(inspection: Inspection, page: Page) -> None:
    from maxtool.cli.pages import inspect_page

    page.write(inspect_page.page(inspection))


def _print_json(out: Output, inspections: list[Inspection], *, metadata: bool, graph: bool) -> None:
    from maxtool.recipe import recognise

    reports = [
        as_json.report(inspection, recognise(inspection.opened.checkpoint), metadata=metadata)
        for inspection in inspections
    ]
    if graph:
        for inspection, report in zip(inspections, reports, strict=True):
            described = graph_table.described(inspection.opened)
            report["graph"] = graph_table.as_json(described)
    if len(reports) == 1:
        out.data(SCHEMA, reports[0])
    else:
        out.data(SEVERAL, {"checkpoints": reports})


def _show(
    out: Output, inspection: Inspection, *, flat: bool, depth: int | None, metadata: bool
) -> None:
    from maxtool.recipe import recognise

    opened, summary = inspection.opened, inspection.summary
    if inspection.values:
        for values in inspection.values:
            payloads.show_values(out, values)
        return
    overview.say_totals(out, opened, summary)
    if opened.checkpoint.format == "artifact":
        overview.say_compiled(out, opened.checkpoint)
    else:
        overview.say_recognition(out, recognise(opened.checkpoint))
    if inspection.stats:
        payloads.show_stats(out, inspection)
    elif flat:
        overview.show_flat(out, summary)
    else:
        overview.show_tree(out, summary, depth)
    overview.show_types(out, summary)
    if metadata:
        overview.show_metadata(out, opened.checkpoint)
    if inspection.digests or inspection.file_digests:
        payloads.show_digests(out, inspection)


def _compare(out: Output, paths: list[str], other: str, question: Questions, page: Page) -> None:
    from maxtool.weights.diff import compare
    from maxtool.weights.pairing import by_names

    if len(paths) > 1 or question.values or question.sha256:
        raise UsageError("--diff compares one PATH with another, and goes with --stats only")
    left, right = _open(out, paths[0]), _open(out, other)
    if question.stats:
        left.need_payloads()
        right.need_payloads()
    first, second = left.checkpoint, right.checkpoint
    pairs = by_names(first, second, question.pattern).pairs if question.stats else ()
    total = sum(pair.nbytes for pair in pairs)
    with out.progress("comparing", total) as advance:
        comparison = compare(
            first, second, pattern=question.pattern, values=question.stats, progress=advance
        )
    if page.wanted:
        from maxtool.cli.pages import diff_page

        page.write(diff_page.page(left, right, comparison, question.pattern))
    if out.json_mode:
        out.data(difference.SCHEMA, difference.as_json(left, right, comparison))
    else:
        difference.show(out, left, right, comparison)
    if not comparison.equal:
        raise typer.Exit(NegativeAnswer.exit_code)
