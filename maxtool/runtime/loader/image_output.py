"""Images looked at, and what the model sees shown: labels with probabilities, or vectors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .arrays import check_output
from .classifier import softmax
from .entries import EntryRunner
from .errors import BadUsage, DoesNotFit, RunError
from .image_entries import PIXELS, RESULTS, TAKING
from .image_pixels import ImagePixels
from .labels import PROBABILITY, SHOWN, best, show
from .labels import SCHEMA as LABELS
from .memory import Array
from .opening import open_model
from .options import CommonOptions, EmbedOptions, TextOptions
from .specs import CLASSIFY, DUAL_ENCODER, LOOK
from .terminal import emit, note, printable
from .written_arrays import appended
from .wrong_path import another_task

VECTORS = "maxtool.embeddings/1"
BATCH = 8  # images in one call, where nothing is asked for


def run_images(options: EmbedOptions | TextOptions, names: Sequence[str]) -> None:
    """Classify images, or embed them where there are no classes or vectors go to a file."""
    check_output(options)
    shown = _shown(options)
    model = open_model(options)
    if LOOK in model.manifest.entries:
        what = "this model reads images within texts"
        raise BadUsage(what, hint="give a text, too: --prompt or --chat")
    if model.manifest.task not in TAKING:
        raise another_task(model.manifest.task)
    if options.labels is not None and model.manifest.task != DUAL_ENCODER:
        raise DoesNotFit("--label is for models that compare images with texts, as CLIP does")
    started, files = time.perf_counter(), [Path(name) for name in names]
    if options.labels is not None:
        _compare(options, model, files, shown, options.labels)
    elif CLASSIFY in model.manifest.entries and options.output is None:
        _classify(options, model, files, shown)
    else:
        _embed(options, model, files)
    count = "1 image" if len(files) == 1 else f"{len(files)} images"
    note(options, f"{count} took {time.perf_counter() - started:.2f} s")


def _shown(options: EmbedOptions | TextOptions) -> int:
    """The number of labels to show."""
    asked = options.top_k if isinstance(options, EmbedOptions) else options.sampling.top_k
    if asked is not None and asked < 1:
        raise BadUsage(f"--top-k {asked}: it is at least 1")
    return asked or SHOWN


def _outputs(model: EntryRunner, entry: str, files: Sequence[Path], batch: int) -> Iterator[Array]:
    """Yield the rows of an entry's result for some of the images at a time."""
    pixels = ImagePixels(model, entry)
    for start in range(0, len(files), batch):
        some = [pixels.of(file) for file in files[start : start + batch]]
        rows = model.run(entry, {PIXELS: np.stack(some)})[RESULTS[entry]]
        if not np.isfinite(rows).all():
            raise RunError("what the model gives is not finite numbers")
        yield rows


def _batch(options: CommonOptions) -> int:
    batch = options.batch if isinstance(options, EmbedOptions) else BATCH
    if batch < 1:
        raise BadUsage(f"a batch of {batch} images")
    return batch


def _classify(
    options: CommonOptions, model: EntryRunner, files: Sequence[Path], shown: int
) -> None:
    """Show the likeliest labels of each image."""
    logits = np.concatenate([*_outputs(model, CLASSIFY, files, _batch(options))])
    _show(options, files, softmax(logits), model.manifest.labels, shown)


def _compare(
    options: CommonOptions,
    model: EntryRunner,
    files: Sequence[Path],
    shown: int,
    labels: Sequence[str],
) -> None:
    """Show which of some texts fit each image best."""
    from .image_comparison import ImageComparison

    batch = _batch(options)
    comparison = ImageComparison(model, labels, batch)
    rows = _outputs(model, TAKING[DUAL_ENCODER][0], files, batch)
    scores = np.concatenate([comparison.scores(vectors) for vectors in rows])
    _show(options, files, scores, labels, shown)


def _show(
    options: CommonOptions,
    files: Sequence[Path],
    scores: Array,
    labels: Sequence[str] | None,
    shown: int,
) -> None:
    """Show the best labels of each image, by ``scores [images, labels]``."""
    found = [best(row, labels, shown, PROBABILITY) for row in scores]
    pairs = list(zip(files, found, strict=True))
    if options.json:
        images = [{"image": str(file), "labels": each} for file, each in pairs]
        emit(json.dumps({"schema": LABELS, "count": len(files), "images": images}) + "\n")
        return
    for file, each in pairs:
        emit(f"{printable(str(file))}\n" if len(files) > 1 else "")
        show(each, PROBABILITY, shares=True)


def _embed(options: CommonOptions, model: EntryRunner, files: Sequence[Path]) -> None:
    """Show a vector of each image, or write them to a file."""
    entry = TAKING[str(model.manifest.task)][0]
    rows = _outputs(model, entry, files, _batch(options))
    width = int(model.entry(entry).outputs[0].shape[1])
    facts: dict[str, object] = {"schema": VECTORS, "count": len(files), "dimensions": width}
    if options.output is not None:
        with appended(options.output, width) as take:
            for some in rows:
                take(some)
        written = f"{printable(str(options.output))} float32[{len(files)}, {width}]\n"
        said = json.dumps({**facts, "output": str(options.output)}) + "\n"
        emit(said if options.json else written)
    elif options.json:
        emit(json.dumps({**facts, "embeddings": np.concatenate([*rows]).tolist()}) + "\n")
    else:
        for some in rows:
            emit("".join(f"[{', '.join(map(str, vector))}]\n" for vector in some))
