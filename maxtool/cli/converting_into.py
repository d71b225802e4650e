"""``maxtool convert --into``: a checkpoint's tensors in a copy of an ONNX model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maxtool.cli import options
from maxtool.cli.units import binary_size, plural
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.cli.output import Output
    from maxtool.conversion.into_onnx import IntoModel
    from maxtool.sources import Source as NamedSource
    from maxtool.weights import TensorSpec


def convert_into(
    out: Output, source: str, model: str, output: str, switches: Mapping[str, bool]
) -> None:
    """Write the copy, or with ``dry_run`` say what would be written."""
    from maxtool.conversion.into_onnx import into_model

    place = options.output_place(output)
    if place.destination is not None:
        what = "--into writes a file on this machine, and the output is elsewhere"
        raise UsageError(what, file=place.destination.shown)
    dry_run, force, base = switches["dry_run"], switches["force"], _local(model)

    def work(brought: NamedSource) -> None:
        finite = switches["allow_nonfinite"]
        planned = into_model(brought.path, base, place.path, force=force, allow_nonfinite=finite)
        for note in planned.notes:
            out.note(note)
        if dry_run:
            if lack := planned.shortage:
                out.warn(lack)
        else:
            with out.progress(f"writing {place.path}", planned.nbytes) as advance:
                planned.run(advance)
        _show(out, planned, brought, dry_run=dry_run)

    options.with_source(out, source, work, place.path, force=force)


def check_alone(given: Mapping[str, object], *groups: object) -> None:
    """Refuse options that change what is written.

    Args:
        given: Values by option; those that are false were not given.
        groups: Dataclasses of options, which have their names.
    """
    fields = {name: value for group in groups for name, value in asdict(group).items()}  # type: ignore[call-overload]
    named = {f"--{name.strip('_').replace('_', '-')}": value for name, value in fields.items()}
    if asked := [option for option, value in {**given, **named}.items() if value]:
        what = f"--into keeps all but the values of a model: {', '.join(asked)} cannot be given"
        raise UsageError(what, hint="convert the source first, and then into the model")


def tensor_rows(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    """Facts on tensors that are written, as data."""
    return [
        {
            "name": spec.name,
            "type": spec.type_name,
            "shape": list(spec.shape),
            "bytes": spec.nbytes,
        }
        for spec in specs
    ]


def _local(model: str) -> Path:
    """The path of a model that a user names."""
    from maxtool.urls import is_url, local_path, redacted

    path = local_path(model) if is_url(model) else Path(model)
    if path is None:
        what, hint = "--into takes a model on this machine", "download it first, and give the file"
        raise UsageError(what, file=redacted(model), hint=hint)
    return path


def _show(out: Output, planned: IntoModel, source: NamedSource, *, dry_run: bool) -> None:
    given = planned.checkpoint.tensors
    if out.json_mode:
        out.data("maxtool.convert/2", _as_json(planned, source, dry_run=dry_run))
        return
    verb = "would write" if dry_run else "wrote"
    size = f"{planned.nbytes} bytes ({binary_size(planned.nbytes)})"
    values = f"values of {plural(len(given), 'tensor')} in {planned.model.path}"
    out.say(f"{verb} {planned.output}: {values}, {size}")


def _as_json(planned: IntoModel, source: NamedSource, *, dry_run: bool) -> dict[str, Any]:
    infos = [planned.model.tensors[name] for name in planned.checkpoint.tensors]
    return {
        "source": str(planned.checkpoint.path),
        "origin": source.record or None,
        "output": str(planned.output),
        "format": "onnx",
        "into": str(planned.model.path),
        "recipe": None,
        "dry_run": dry_run,
        "bytes": planned.nbytes,
        "types": dict(Counter(info.type_name for info in infos)),
        "files": {name: file.stat().st_size for file, name in planned.files.items()},
        "tensors": tensor_rows(infos),
        "notes": planned.notes,
        "verified": False,
        "kept": [],
        "sha256": {},
        "sources": {},
        "warnings": [],
        "up_to_date": False,
        "share": None,
    }
