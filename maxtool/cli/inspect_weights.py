"""``maxtool inspect-weights``: what a checkpoint holds, from headers alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxtool.cli import options, units
from maxtool.cli.output import Output
from maxtool.errors import NegativeAnswer

if TYPE_CHECKING:
    from rich.table import Table

    from maxtool.recipe import Recognition
    from maxtool.weights import Checkpoint, TensorInfo
    from maxtool.weights.summary import Node, Summary

SCHEMA = "maxtool.inspect-weights/1"
# Text and arrays in metadata are shown up to this many characters and items; --json has them whole.
MAX_TEXT, MAX_ITEMS = 160, 6

COLUMNS = (("type", "left"), ("shape", "right"), ("params", "right"), ("bytes", "right"))


def inspect_weights(
    out: Output,
    path: Annotated[
        Path,
        typer.Argument(help="A Hugging Face folder, a safetensors file or index, or a GGUF file."),
    ],
    metadata: Annotated[
        bool, options.flag("--metadata", help="Show the file's key/values and its config.json too.")
    ] = False,
    flat: Annotated[bool, options.flag("--flat", help="One line per tensor, no tree.")] = False,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Levels of the tree to show.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--filter", metavar="GLOB", help="Only tensors whose whole name matches."),
    ] = None,
) -> None:
    """Show the tensors of a checkpoint: names, types, shapes, sizes. Reads headers only."""
    from maxtool.recipe import recognise
    from maxtool.weights import open_checkpoint
    from maxtool.weights.summary import summarize

    checkpoint = open_checkpoint(path)
    summary = summarize(checkpoint, pattern=pattern)
    for note in checkpoint.notes:
        out.warn(note)
    if pattern is not None and not summary.tensors:
        raise NegativeAnswer(f"no tensor's name matches {pattern!r}", file=path)
    recognition = recognise(checkpoint)
    if out.json_mode:
        content = _as_json(checkpoint, summary, metadata=metadata)
        out.data(SCHEMA, {**content, "recognition": asdict(recognition)})
        return
    _say_totals(out, checkpoint, summary)
    _say_recognition(out, recognition)
    rows = _flat_rows(out, summary) if flat else _tree_rows(out, summary.tree, depth)
    _draw(out, _tensor_table(rows, summary))
    if len(summary.by_type) > 1:
        _draw(out, _type_table(summary))
    if metadata:
        _show_metadata(out, checkpoint)


def _say_totals(out: Output, checkpoint: Checkpoint, summary: Summary) -> None:
    total = summary.total
    whole = len(checkpoint.tensors)
    tensors = units.plural(total.tensors, "tensor")
    parts = (
        checkpoint.format,
        units.plural(len(checkpoint.files), "file"),
        tensors if total.tensors == whole else f"{total.tensors:,} of {whole:,} tensors",
        units.plural(total.parameters, "parameter"),
        units.binary_size(total.nbytes),
    )
    out.print(f"[bold]{out.escape(checkpoint.path.resolve().name)}[/]  {' · '.join(parts)}")


def _say_recognition(out: Output, recognition: Recognition) -> None:
    """Which recipe the model fits, and everything that does not."""
    problems = recognition.problems
    if recognition.recipe is None:
        out.print(f"[dim]recipe none: {out.escape(problems[0])}[/]")
        return
    fits = f"{units.plural(len(problems), 'problem')}" if problems else "everything fits"
    made = units.plural(recognition.parameters, "weight")
    out.print(f"[dim]recipe[/] {out.escape(recognition.recipe)} · {made} · {fits}")
    shown = problems if out.verbose else problems[:MAX_ITEMS]
    for problem in shown:
        out.print(f"  [yellow]{out.escape(problem)}[/]")
    if len(shown) < len(problems):
        out.print(f"  [dim]and {len(problems) - len(shown)} more (--verbose)[/]")


Row = tuple[str, str, str, str, str, int]


def _tree_rows(
    out: Output, nodes: Sequence[Node], depth: int | None, guide: str = ""
) -> Iterator[Row]:
    """One row per node, its name behind the lines that connect it to its parent."""
    for index, node in enumerate(nodes):
        last = index == len(nodes) - 1
        top = not guide
        times = f" [dim]({units.TIMES}{node.repeats})[/]" if node.repeats > 1 else ""
        branch = "" if top else "└ " if last else "├ "
        yield _row(f"[dim]{guide[2:]}{branch}[/]{out.escape(node.label)}{times}", node)
        if depth is None or depth > 1:
            below = guide + ("  " if last or top else "│ ")
            yield from _tree_rows(out, node.children, depth and depth - 1, below)


def _row(label: str, node: Node) -> Row:
    first, total = node.types[0][0], node.total
    more = f" +{len(node.types) - 1}" if len(node.types) > 1 else ""
    return (
        label,
        f"[dim]{first}{more}[/]" if node.shape is None else first,
        "" if node.shape is None else units.shape(node.shape),
        units.count(total.parameters),
        units.binary_size(total.nbytes),
        total.nbytes,
    )


def _flat_rows(out: Output, summary: Summary) -> Iterator[Row]:
    for tensor in summary.tensors:
        yield (
            out.escape(tensor.name),
            tensor.type_name,
            units.shape(tensor.shape),
            units.count(tensor.size),
            units.binary_size(tensor.nbytes),
            tensor.nbytes,
        )


def _table(*columns: tuple[str, str]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for header, justify in columns:
        first = not table.columns
        overflow: Any = "fold" if first else "ellipsis"
        table.add_column(header, justify=justify, no_wrap=not first, overflow=overflow)  # type: ignore[arg-type]
    return table


def _tensor_table(rows: Iterable[Row], summary: Summary) -> Table:
    table = _table(("name", "left"), *COLUMNS, ("share", "right"))
    for *cells, nbytes in rows:
        table.add_row(*map(str, cells), units.share(nbytes, summary.total.nbytes))
    return table


def _type_table(summary: Summary) -> Table:
    table = _table(("type", "left"), *((name, "right") for name in TYPE_COLUMNS))
    for name, total in summary.by_type.items():
        table.add_row(
            name,
            f"{total.tensors:,}",
            f"{total.parameters:,}",
            units.binary_size(total.nbytes),
            units.share(total.nbytes, summary.total.nbytes),
        )
    return table


TYPE_COLUMNS = ("tensors", "parameters", "bytes", "share")


def _draw(out: Output, table: Table) -> None:
    """Print a table after a blank line; piped, it is as wide as its contents need."""
    console = out.stdout
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        needed = console.measure(table, options=console.options.update(max_width=1 << 16))
        console.width = max(console.width, needed.maximum)
    out.print("")
    out.print(table)


def _show_metadata(out: Output, checkpoint: Checkpoint) -> None:
    sections: dict[str, Mapping[str, object]] = {"metadata": checkpoint.metadata}
    if checkpoint.config is not None and checkpoint.config_file is not None:
        sections[checkpoint.config_file.name] = checkpoint.config
    for title, content in sections.items():
        table = _table((title, "left"), ("", "left"))
        table.columns[0].no_wrap = True
        table.columns[1].no_wrap, table.columns[1].overflow = False, "fold"
        for key, value in content.items():
            table.add_row(out.escape(key), out.escape(_abbreviated(value)))
        if content:
            _draw(out, table)


def _abbreviated(value: object) -> str:
    """A value in a line or two: the first items of long lists, the start of long texts."""
    if not isinstance(value, list) and not getattr(value, "ndim", 0):
        return _cut(str(value))
    items: Any = value
    shown = [repr(item) if isinstance(item, str) else str(item) for item in items[:MAX_ITEMS]]
    rest = len(items) - len(shown)
    return _cut(f"[{', '.join(shown)}{f', ... {rest:,} more' if rest else ''}]")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text):,} characters)"


def _plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A metadata value as JSON takes it; NaN and infinity as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    return value


def _as_json(checkpoint: Checkpoint, summary: Summary, *, metadata: bool) -> dict[str, object]:
    content: dict[str, object] = {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "files": [{"path": str(file), "bytes": file.stat().st_size} for file in checkpoint.files],
        "notes": list(checkpoint.notes),
        "total": _total(summary.total),
        "types": {name: _total(total) for name, total in summary.by_type.items()},
        "tensors": [_tensor(tensor) for tensor in summary.tensors],
    }
    if metadata:
        content["metadata"] = _plain(checkpoint.metadata)
        content["config"] = _plain(checkpoint.config)
    return content


def _total(total: Any) -> dict[str, int]:  # noqa: ANN401 - a Total, not imported here
    return {"tensors": total.tensors, "parameters": total.parameters, "bytes": total.nbytes}


def _tensor(tensor: TensorInfo) -> dict[str, object]:
    return {
        "name": tensor.name,
        "type": tensor.type_name,
        "dtype": tensor.dtype.name,
        "encoding": tensor.encoding.name if tensor.encoding else None,
        "shape": list(tensor.shape),
        "parameters": tensor.size,
        "bytes": tensor.nbytes,
        "file": str(tensor.file),
        "offset": tensor.offset,
    }
