"""``maxtool convert``: a checkpoint in another format, element type, encoding or dialect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxtool.cli import complete, options, units
from maxtool.cli.convert_options import CheckOptions, EditOptions, FileOptions
from maxtool.cli.converting_into import check_alone, convert_into, tensor_rows
from maxtool.cli.output import Output
from maxtool.cli.quantizing import QuantizeOptions
from maxtool.cli.spreading import FINISH, SpreadOptions, Way
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.conversion import Conversion, Report, Request
    from maxtool.conversion.current import Earlier
    from maxtool.sources import Source as NamedSource

SCHEMA = "maxtool.convert/2"


def convert(
    out: Output,
    source: options.Source,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="NAME.gguf, NAME.safetensors, NAME.npz, or a folder to make; or such a URL.",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="hf, gguf, safetensors or npz; told from the output's name if absent.",
            autocompletion=complete.one_of("hf", "gguf", "safetensors", "npz"),
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="MODEL.onnx",
            help="Write a copy of this ONNX model with the source's values of its initializers.",
        ),
    ] = None,
    recipe: options.Recipe = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="TYPE",
            help="float32, float16 or bfloat16; the source's own if absent.",
            autocompletion=complete.one_of(*options.DTYPES),
        ),
    ] = None,
    quantized: QuantizeOptions = QuantizeOptions(),  # noqa: B008 - frozen
    name: options.Name = None,
    force: options.Force = False,
    dry_run: options.DryRun = False,
    ignore_config: options.IgnoreConfig = None,
    files: FileOptions = FileOptions(),  # noqa: B008 - frozen
    checks: CheckOptions = CheckOptions(),  # noqa: B008 - frozen
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            help="Threads that read and convert; one per core if absent.",
        ),
    ] = None,
    edits: EditOptions = EditOptions(),  # noqa: B008 - frozen
    spread: SpreadOptions = SpreadOptions(),  # noqa: B008 - frozen
) -> None:
    """Rewrite a checkpoint as GGUF or as a Hugging Face folder, losing nothing not asked for."""
    from maxtool.conversion import request as asked
    from maxtool.conversion.object_output import standing_in

    if into is not None:
        switches = {"force": force, "dry_run": dry_run, "allow_nonfinite": edits.allow_nonfinite}
        others = replace(edits, allow_nonfinite=False, no_recipe=False)
        given = {"--to": to, "--recipe": recipe, "--dtype": dtype, "--name": name, "--jobs": jobs}
        check_alone(
            {**given, "--ignore-config": ignore_config}, quantized, files, checks, others, spread
        )
        convert_into(out, source, into, output, switches)
        return
    spread.check()
    place = options.output_place(output, if_changed=checks.if_changed)
    with ExitStack() as headers:
        request = asked.Request(
            source=Path(source),
            output=place.path,
            destination=place.destination,
            to=None if to is None else asked.parse_target(to),
            recipe=None if recipe is None else options.local_recipe(recipe),
            dtype=options.parse_dtype(dtype),
            quantize=quantized.parsed(out),
            force=force or checks.if_changed,
            ignore=frozenset(ignore_config or ()),
            name=name,
            **files.parsed(),
            **edits.parsed(out, headers if dry_run else None),
            verify=checks.verify,
            sha256=checks.sha256,
            digests=out.json_mode or checks.if_changed,
            in_shares=spread.is_asked,
            jobs=jobs,
        )

        def work(brought: NamedSource) -> None:
            known = replace(request, source=brought.path, origin=brought.record)
            _convert(out, known, spread, dry_run=dry_run, if_changed=checks.if_changed)

        request = headers.enter_context(standing_in(request))
        options.with_source(
            out, source, work, request.output, force=request.force, headers_alone=dry_run
        )


def _convert(
    out: Output, request: Request, spread: SpreadOptions, *, dry_run: bool, if_changed: bool
) -> None:
    """Plan a conversion, and run it unless it is a dry run, or the output would be the same."""
    from maxtool import conversion

    planned = conversion.prepare(request)
    for note in planned.notes:
        out.note(note)
    earlier = _earlier(out, planned) if if_changed else None
    if earlier is not None and _is_current(out, earlier):
        _show_current(out, planned)
        return
    way = spread.way(out, planned)
    if dry_run:
        if lack := planned.shortage:
            out.warn(lack)
        _show(out, way, None)
        return
    with _telling_what_is_kept(out, way), out.progress(way.label, way.told) as meter:
        report = way.run(meter)
    if earlier is not None and way.is_whole:
        with out.progress("noting what it was made of") as meter:
            earlier.note(report, meter)
    for warning in report.warnings:
        out.warn(warning)
    _show(out, way, report)


def _earlier(out: Output, planned: Conversion) -> Earlier | None:
    """The note of how the output was made; None where there can be none."""
    from maxtool.conversion.current import Earlier

    try:
        return Earlier(planned)
    except RuntimeError as error:
        out.warn(f"no folder for a cache is known, so the output is made again: {error}")
        return None


def _is_current(out: Output, earlier: Earlier) -> bool:
    with out.progress("comparing with what is there") as advance:
        return earlier.is_current(advance)


@contextmanager
def _telling_what_is_kept(out: Output, way: Way) -> Iterator[None]:
    """Say how many files are kept for the next run if the block is interrupted, or fails."""
    from maxtool.conversion import kept_files

    try:
        yield
    except UsageError:
        raise
    except BaseException:
        kept = kept_files(way.planned)
        if kept:
            files = units.plural(len(way.planned.layout.files), "file")
            out.note(f"{kept} of {files} are kept; the same command goes on with them")
        raise


def _show_current(out: Output, planned: Conversion) -> None:
    """The plan, of which nothing had to be done, as data."""
    if out.json_mode:
        out.data(SCHEMA, {**_as_json(planned, None), "up_to_date": True, "share": None})
    else:
        out.say(f"{planned.request.shown}: up to date")


def _show(out: Output, way: Way, report: Report | None) -> None:
    """The plan, or what was done, as data."""
    planned = way.planned
    if out.json_mode:
        said = {"up_to_date": False, "share": way.share or None}
        out.data(SCHEMA, {**_as_json(planned, report), **said})
        return
    if report is None or out.verbose:
        from maxtool.weights.names import natural_key

        for spec in sorted(planned.specs, key=lambda spec: natural_key(spec.name)):
            out.text(f"{spec.name}  {spec.type_name}  {list(spec.shape)}  {spec.nbytes}")
        for name, nbytes in planned.files.items():
            out.text(f"{name}  {nbytes} bytes")
    types = ", ".join(f"{count} {name}" for name, count in sorted(planned.types.items()))
    verb = "would write" if report is None else "wrote"
    size = f"{planned.nbytes} bytes ({units.binary_size(planned.nbytes)})"
    recipe = f"recipe {planned.recipe.name}" if planned.recipe else "no recipe"
    read_back = " (read back)" if report is not None and planned.request.verify else ""
    if report is not None and report.kept and way.share != FINISH:
        read_back += f" ({len(report.kept)} of {len(planned.layout.files)} files kept)"
    named = _named(planned) if way.is_whole else _named_share(way)
    if not planned.layout.files:
        out.say(f"{verb} {named}: there are fewer files than shares")
        return
    out.say(f"{verb} {named}: {recipe}, tensors: {types}, {size}{read_back}")


def _named_share(way: Way) -> str:
    """A share, and the files that it has."""
    from maxtool.weights.names import first_of

    files = first_of([file.name for file in way.planned.layout.files], 3) or "nothing"
    return f"share {way.share} of {way.planned.request.shown}, {files}"


def _named(planned: Conversion) -> str:
    """The output, or the first of its files and how many more there are."""
    shown, layout = planned.request.shown, planned.layout
    if layout.replaced is None or len(layout.parts) == 1:
        return shown
    more = units.plural(len(layout.parts) - 1, "more file")
    return f"{shown.removesuffix(planned.request.output.name)}{layout.entry} and {more}"


def _source(planned: Conversion, *, is_planned: bool) -> str:
    """The path that was read; of a plan for what is not on this machine, its name."""
    request = planned.request
    return str(request.origin.get("name", request.source) if is_planned else request.source)


def _as_json(planned: Conversion, report: Report | None) -> dict[str, Any]:
    return {
        "source": _source(planned, is_planned=report is None),
        "origin": planned.request.origin or None,
        "output": planned.request.shown,
        "format": planned.request.target,
        "recipe": planned.recipe.name if planned.recipe else None,
        "dry_run": report is None,
        "bytes": planned.nbytes,
        "types": planned.types,
        "files": planned.files,
        "tensors": tensor_rows(planned.specs),
        "notes": planned.notes,
        "verified": report is not None and planned.request.verify,
        "kept": [] if report is None else report.kept,
        "sha256": {} if report is None else report.sha256,
        "sources": planned.hashed_sources(),
        "warnings": [] if report is None else report.warnings,
    }
