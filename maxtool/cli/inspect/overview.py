"""The first lines, the tree or list of tensors, the types, and the metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from maxtool.cli import units
from maxtool.cli.output import Output
from maxtool.cli.tables import MAX_DRAWN, Column, Label, draw, draw_labels, draw_names, table, write

if TYPE_CHECKING:
    from maxtool.recipe import Recognition
    from maxtool.weights import Checkpoint
    from maxtool.weights.opened_checkpoint import OpenedCheckpoint
    from maxtool.weights.summary import Summary, TreeNode

# Text and arrays in metadata are shown up to this many characters and items; --json has them whole.
MAX_TEXT, MAX_ITEMS = 160, 6

TENSOR_COLUMNS: tuple[Column, ...] = (
    ("name", "left"),
    ("type", "left"),
    ("shape", "right"),
    ("params", "right"),
    ("bytes", "right"),
    ("share", "right"),
)
TYPE_COLUMNS = ("tensors", "parameters", "bytes", "share")


def say_totals(out: Output, opened: OpenedCheckpoint, summary: Summary) -> None:
    """Name, format and totals in one line."""
    out.print(f"[bold]{out.escape(opened.name)}[/]  {totals(opened, summary)}")


def totals(opened: OpenedCheckpoint, summary: Summary) -> str:
    """Format and totals of a checkpoint."""
    checkpoint, total = opened.checkpoint, summary.total
    whole = len(checkpoint.tensors)
    tensors = units.plural(total.tensors, "tensor")
    parts = (
        checkpoint.format,
        units.plural(len(checkpoint.files), "file"),
        tensors if total.tensors == whole else f"{total.tensors:,} of {whole:,} tensors",
        units.plural(total.parameters, "parameter"),
        units.binary_size(total.nbytes),
    )
    return " · ".join(parts)


def say_recognition(out: Output, recognition: Recognition) -> None:
    """Print which recipe the model fits, and every mismatch."""
    problems = recognition.problems
    if recognition.recipe is None:
        out.print(f"[dim]recipe none: {out.escape(problems[0])}[/]")
        return
    fits = f"{units.plural(len(problems), 'problem')}" if problems else "everything fits"
    count = units.plural(recognition.parameters, "weight")
    out.print(f"[dim]recipe[/] {out.escape(recognition.recipe)} · {count} · {fits}")
    if recognition.part:
        out.print(f"  [dim]{out.escape(recognition.part)}[/]")
    shown = problems if out.verbose else problems[:MAX_ITEMS]
    for problem in shown:
        out.print(f"  [yellow]{out.escape(problem)}[/]")
    if len(shown) < len(problems):
        out.print(f"  [dim]and {len(problems) - len(shown)} more (--verbose)[/]")


def say_compiled(out: Output, checkpoint: Checkpoint) -> None:
    """Print what a compiled model is, and how many weights are stored otherwise than shown."""
    from maxtool.weights.formats.artifact import PackedTensor

    facts = checkpoint.metadata
    target = facts.get("target")
    device = target.get("kind") if isinstance(target, dict) else None
    tensors = checkpoint.tensors.values()
    encodings = sorted({info.encoding.name for info in tensors if info.encoding is not None})
    types = ", ".join([*encodings, *map(str, filter(None, [facts.get("dtype")]))])
    said = (facts.get("recipe"), f"for {device}", *filter(None, [types]))
    context = facts.get("context")
    parts = [*map(str, said), *([f"context {context}"] if context is not None else [])]
    out.print(f"[dim]compiled from[/] {out.escape(' · '.join(parts))}")
    if packed := sum(isinstance(info, PackedTensor) for info in checkpoint.tensors.values()):
        weights = f"{packed:,} of {units.plural(len(checkpoint.tensors), 'weight')}"
        out.print(f"[dim]{weights} packed in blocks of rows, shown unpacked[/]")


def show_tree(out: Output, summary: Summary, depth: int | None) -> None:
    """The tree of names, layers alike as one line."""
    rows = _tree_rows(summary.tree, depth, summary.total.nbytes)
    draw_labels(out, TENSOR_COLUMNS, rows)


Row = tuple[Label, str, str, str, str, str]


def _tree_rows(
    nodes: Sequence[TreeNode], depth: int | None, whole: int, guide: str = ""
) -> Iterator[Row]:
    """One row per node, its name behind the lines that connect it to its parent."""
    for index, node in enumerate(nodes):
        last = index == len(nodes) - 1
        top = not guide
        times = f" ({units.TIMES}{node.repeats})" if node.repeats > 1 else ""
        branch = "" if top else "└ " if last else "├ "
        yield _row(Label(node.label, guide[2:] + branch, times), node, whole)
        if depth is None or depth > 1:
            below = guide + ("  " if last or top else "│ ")
            yield from _tree_rows(node.children, depth and depth - 1, whole, below)


def _row(label: Label, node: TreeNode, whole: int) -> Row:
    first, total = node.types[0][0], node.total
    more = f" +{len(node.types) - 1}" if len(node.types) > 1 else ""
    return label, *_cells(f"{first}{more}", node.shape, total.parameters, total.nbytes, whole)


def _cells(
    dtype: str, shape: tuple[int, ...] | None, parameters: int, nbytes: int, whole: int
) -> tuple[str, str, str, str, str]:
    """The cells behind a name."""
    dims = "" if shape is None else units.shape(shape)
    size, share = units.binary_size(nbytes), units.share(nbytes, whole)
    return dtype, dims, units.count(parameters), size, share


def show_flat(out: Output, summary: Summary) -> None:
    """One line per tensor of the files, those too that make a weight together."""
    from maxtool.weights.composite import stored_parts
    from maxtool.weights.names import natural_key

    whole = summary.total.nbytes
    stored = [info for weight in summary.tensors for info in stored_parts(weight)]
    rows = (
        (info.name, *_cells(info.type_name, info.shape, info.size, info.nbytes, whole))
        for info in sorted(stored, key=lambda info: natural_key(info.name))
    )
    draw_names(out, TENSOR_COLUMNS, rows)


def show_types(out: Output, summary: Summary) -> None:
    """Totals by type, if there are several."""
    if len(summary.by_type) < 2:
        return
    drawn = table(("type", "left"), *((name, "right") for name in TYPE_COLUMNS))
    for name, total in summary.by_type.items():
        drawn.add_row(
            name,
            f"{total.tensors:,}",
            f"{total.parameters:,}",
            units.binary_size(total.nbytes),
            units.share(total.nbytes, summary.total.nbytes),
        )
    draw(out, drawn)


def show_metadata(out: Output, checkpoint: Checkpoint) -> None:
    """The files' key/values, and the configuration beside them."""
    sections: dict[str, Mapping[str, object]] = {"metadata": checkpoint.metadata}
    if checkpoint.config is not None and checkpoint.config_file is not None:
        sections[checkpoint.config_file.name] = checkpoint.config
    for title, content in sections.items():
        if len(content) > MAX_DRAWN:
            cells = [(key, _abbreviated(value)) for key, value in content.items()]
            write(out, [(title, "left"), ("", "left")], cells, folds=1)
            continue
        drawn = table((title, "left"), ("", "left"))
        drawn.columns[0].no_wrap = True
        drawn.columns[1].no_wrap, drawn.columns[1].overflow = False, "fold"
        for key, value in content.items():
            drawn.add_row(out.escape(key), out.escape(_abbreviated(value)))
        if content:
            draw(out, drawn)


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
