"""``maxtool compile``: a checkpoint as a folder that runs on its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxtool.cli import complete, options
from maxtool.cli.compile_report import show, summary
from maxtool.cli.optional_values import CHECKS
from maxtool.cli.output import Output
from maxtool.cli.pages.page_file import Page
from maxtool.cli.quantizing import QuantizeOptions
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.artifact.onnx_build import OnnxBuild
    from maxtool.cli.compile_report import AnyBuild
    from maxtool.sources import Source as NamedSource

# What a source may be, in words.
MODULE, CHECKPOINT, ONNX = "a module (FILE.py:NAME)", "a checkpoint", "an ONNX model"


def compile(  # noqa: A001 - the command's name
    out: Output,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A Hugging Face folder, a safetensors, PyTorch or GGUF file, or its URL. Or a "
            "module of yours, FILE.py:NAME: that file is executed. Or an ONNX model, FILE.onnx.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to make.")
    ],
    recipe: options.Recipe = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="CHECKPOINT",
            help="Of a module: where the values of its weights are. It is never executed.",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="NAME",
            help="Of a module: what the names of its tensors begin with there.",
        ),
    ] = None,
    input: Annotated[  # noqa: A002 - the option's name
        list[str] | None,
        typer.Option(
            "--input",
            metavar="SPEC",
            help="Of a module: an input, 'x=float32[batch,16]'. Of one entry: 'ENTRY.x=...'.",
        ),
    ] = None,
    entry: Annotated[
        list[str] | None,
        typer.Option(
            "--entry",
            metavar="NAME=METHOD",
            help="Of a module: a function of the artifact, and the method that computes it; "
            "may be repeated. forward if absent.",
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="NAME=SIZES",
            help="Of an ONNX model: the shape of an input, 'input=batch,128'; a name is any size.",
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME=VALUE",
            help="Of an ONNX model: an input that becomes a constant, in JSON or a .npy file.",
        ),
    ] = None,
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
            "The source's own if absent, quantized ones too; these are float16 on GPUs.",
            metavar="TYPE",
            autocompletion=complete.one_of(*options.DTYPES),
        ),
    ] = None,
    quantized: QuantizeOptions = QuantizeOptions(),  # noqa: B008 - frozen
    kv_dtype: Annotated[
        str | None,
        typer.Option(
            "--kv-dtype",
            help="How a decoder's cache stores keys and values: float32, float16, bfloat16 or, on "
            "CPUs, Q8_0. float16 if absent, float32 if matrices are; on GPUs as matrices.",
            metavar="TYPE",
            autocompletion=complete.one_of(*options.CACHE_TYPES),
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
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            metavar="N",
            help="How many texts a decoder continues at once, on CPUs; "
            "each has a cache of its own.",
        ),
    ] = 1,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling",
            metavar="KIND",
            help="How a text becomes one vector: mean, cls, max or last; else as the model says.",
            autocompletion=complete.one_of(*options.POOLINGS),
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Scale that vector to length 1, or not; else as the model says.",
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            "--image-size",
            metavar="N",
            help="Pixels of a side of the images; else what the model's preprocessing makes.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar=f"[{'|'.join(CHECKS)}]",
            help="Compare the outputs with the graph in float64, which proves the compilation, or "
            "with the original model, which proves the reading too.",
            autocompletion=complete.one_of(*CHECKS),
        ),
    ] = None,
    standalone: Annotated[
        bool, options.flag("--standalone", help="Put TVM's runtime library into the folder.")
    ] = False,
    html: options.Html = None,
    name: options.Name = None,
    force: options.Force = False,
    if_changed: Annotated[
        bool,
        options.flag("--if-changed", help="Replace an artifact unless it would be the same."),
    ] = False,
    dry_run: options.DryRun = False,
    ignore_config: options.IgnoreConfig = None,
) -> None:
    """Compile a checkpoint into a folder that runs without a framework."""
    from maxtool import artifact

    page = Page(html, force)
    if page.wanted and check is None:
        raise UsageError("--html draws what --check compares", hint="pass --check too")
    page.check([options.local_output(output), source])
    options.check_not_code(source)
    module = artifact.parse_reference(source)
    against = options.parse_check(check or CHECKS[0])
    scheme = quantized.parsed(out)
    of_module = {"--weights": weights, "--prefix": prefix, "--input": input, "--entry": entry}
    of_recipe = {
        "--recipe": recipe,
        "--devices": devices if devices != 1 else None,
        "--kv-dtype": kv_dtype,
        "--context": context,
        "--batch": batch if batch != 1 else None,
        "--quantize": quantized.quantize,
        "--pooling": pooling,
        "--normalize": normalize,
        "--image-size": image_size,
        "--ignore-config": ignore_config,
        "--check transformers": against if against == "transformers" else None,
    }
    of_onnx = {
        "--shape": shape,
        "--fix": fix,
        "--check onnxruntime": against if against == "onnxruntime" else None,
    }
    is_onnx = module is None and recipe is None and options.is_onnx(source)
    kind = ONNX if is_onnx else CHECKPOINT if module is None else MODULE
    _refuse({MODULE: of_module, CHECKPOINT: of_recipe, ONNX: of_onnx}, kind)
    _refuse({f"{MODULE} or {CHECKPOINT}": {"--dtype": dtype if is_onnx else None}}, kind)
    common: dict[str, Any] = {
        "output": options.local_output(output),
        "target": target,
        "ptx": ptx,
        "dtype": options.parse_dtype(dtype),
        "check": check is not None,
        "standalone": standalone,
        "force": force or if_changed,
        "name": name,
    }
    finish = partial(_make, out, page=page, if_changed=if_changed, dry_run=dry_run)
    if module is not None:
        given = None if weights is None else options.source(out, weights)
        wanted = artifact.ModuleRequest(
            module=module,
            weights=None if given is None else given.path,
            origin={} if given is None else given.record,
            entries=tuple(artifact.parse_entries(entry or (), input or ())),
            prefix=prefix or "",
            **common,
        )
        finish(artifact.prepare_module(wanted))
    elif is_onnx:
        del common["dtype"]
        finish(
            _of_onnx(
                options.source(out, source), shape or (), fix or (), common | {"against": against}
            )
        )
    else:
        request = artifact.Request(
            source=Path(source),
            recipe=None if recipe is None else options.local_recipe(recipe),
            devices=devices,
            kv_dtype=options.parse_cache_type(kv_dtype),
            context=context,
            batch=batch,
            quantize=scheme,
            pooling=options.parse_pooling(pooling),
            normalize=normalize,
            image_size=image_size,
            against=against,
            ignore=frozenset(ignore_config or ()),
            **common,
        )

        def work(brought: NamedSource) -> None:
            prepared = replace(request, source=brought.path, origin=brought.record)
            finish(artifact.prepare(prepared))

        alone = dry_run and not if_changed
        options.with_source(
            out, source, work, request.output, force=request.force, headers_alone=alone
        )


def _of_onnx(
    model: NamedSource, shape: Sequence[str], fix: Sequence[str], common: Mapping[str, Any]
) -> OnnxBuild:
    """Plan the compilation of an ONNX model; only here is the onnx package imported."""
    from maxtool.artifact.input_values import parse_fixed, parse_shapes
    from maxtool.artifact.onnx_build import prepare_onnx
    from maxtool.artifact.request import OnnxRequest

    shapes, fixed = parse_shapes(shape), parse_fixed(fix)
    request = OnnxRequest(
        source=model.path, shapes=shapes, fixed=fixed, origin=model.record, **common
    )
    return prepare_onnx(request)


def _make(out: Output, build: AnyBuild, page: Page, *, if_changed: bool, dry_run: bool) -> None:
    """Tell the plan, and run it unless it is a dry run or nothing would change."""
    from maxtool import artifact

    out.note(summary(build))
    for note in build.notes:
        out.note(note)
    if if_changed and _is_current(out, build):
        show(out, build, None, is_current=True)
        return
    report = None
    if dry_run:
        if lack := build.shortage:
            out.warn(lack)
    else:
        with out.progress("compiling") as advance, _drawn(out, build, page):
            report = artifact.make(build, advance)
    show(out, build, report)


def _is_current(out: Output, build: AnyBuild) -> bool:
    """Return whether the artifact that is there is what would be compiled."""
    from maxtool.artifact.current import is_current

    with out.progress("comparing with what is there") as meter:
        return is_current(build, meter)


@contextmanager
def _drawn(out: Output, build: AnyBuild, page: Page) -> Iterator[None]:
    """Draw what the check in the block compares, also where that fails it."""
    if not page.wanted:
        yield
        return
    from maxtool.artifact.observed import ObservedOutput
    from maxtool.cli.pages import check_page

    outputs: list[ObservedOutput] = []
    build.observe = outputs.append
    try:
        yield
    finally:
        if outputs:
            page.write(check_page.page(build.request.output.name, outputs))
    if not outputs:
        out.warn("no output was compared on this machine, so there is no page")


def _refuse(options: Mapping[str, Mapping[str, object]], kind: str) -> None:
    """Refuse options that other kinds of sources have."""
    for meant, of_kind in options.items():
        given = [name for name, value in of_kind.items() if value is not None]
        if given and meant != kind:
            raise UsageError(f"{', '.join(given)}: for {meant}, not {kind}")
