"""Cases: what is measured of an artifact, by its task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from maxtool.benchmark.work import EmbeddingWork, GenerationWork, Work, call_work
from maxtool.errors import ModelMismatch, UsageError
from maxtool.runtime.loader.manifest import Manifest
from maxtool.runtime.loader.specs import (
    EMBED,
    GENERATE,
    TEXT_TO_TEXT,
    TRANSCRIBE,
    EntrySpec,
)

# What models of other tasks do, and what measures them instead.
UNMEASURED: dict[str | None, tuple[str, str]] = {
    TRANSCRIBE: ("writes down speech", "run --audio says how long a sound took"),
    TEXT_TO_TEXT: ("writes a text behind another", "run --prompt says how fast it was"),
}
PREFILL, DECODE, CALL = "prefill", "decode", "call"
# Tokens of a prompt, those made behind it, and those of each text, where none are asked for.
PROMPT, TOKENS, TEXT = 512, 64, 128
BATCHES = (1, 8)
TIMES = "\N{MULTIPLICATION SIGN}"
# Types whose products are measured on this machine.
PEAKS = FLOAT32, INT8 = "float32", "int8"


@dataclass(frozen=True)
class Settings:
    """Options of a benchmark; what is not asked for depends on the task."""

    prompts: Sequence[int] = ()  # tokens of a prompt, or of each text of an encoder
    tokens: int | None = None  # that are generated behind each prompt
    batches: Sequence[int] = ()  # texts in a call of an encoder, or of a decoder with slots
    sizes: Mapping[str, int] = field(default_factory=dict)  # of a module's named dimensions
    rounds: int = 5
    threads: int | None = None  # None for as many as a model uses by itself
    profile: bool = False  # whether kernels are timed in the end

    def __post_init__(self) -> None:
        named = {"prompt": self.prompts, "batch": self.batches, "rounds": [self.rounds]}
        single = {"tokens": self.tokens, "threads": self.threads}
        named |= {name: [value] for name, value in single.items() if value is not None}
        named |= {f"size {name}": [size] for name, size in self.sizes.items()}
        for name, values in named.items():
            if wrong := [value for value in values if value < 1]:
                raise UsageError(f"--{name} is {wrong[0]}; it is at least 1")


@dataclass(frozen=True)
class Case:
    """One thing that is measured, over and over."""

    step: str  # what is done: prefill, decode, embed or call
    label: str
    unit: str  # what is counted: a token, a text, or a call
    sizes: Mapping[str, int]  # of the step, by name
    work: Work | None  # for each unit
    entry: str = ""  # that is called, where the step does not say it
    units: int = 1  # that a round measures at least
    peak: str = FLOAT32  # the products that its operations are compared with
    step_units: int = 1  # that are done together: the tokens of a prompt, the texts of a batch

    @property
    def order(self) -> dict[str, object]:
        """The case as a worker is told of it."""
        return {"step": self.step, "sizes": dict(self.sizes), "entry": self.entry}


def cases_of(manifest: Manifest, settings: Settings) -> list[Case]:
    """The cases of an artifact.

    Raises:
        ModelMismatch: If it is for a GPU, or has no room for what is asked.
        UsageError: If a size is asked for that it does not have.
    """
    target = manifest.target.get("kind")
    if target != "cpu":
        raise ModelMismatch(
            f"the model is compiled for {target}, and bench measures models for CPUs",
            file=manifest.folder,
            hint="compile it without --target, or with --target cpu:NAME",
        )
    peak = _peak(manifest)
    if manifest.task in UNMEASURED:
        does, hint = UNMEASURED[manifest.task]
        what = f"the model {does}, which bench does not measure"
        raise ModelMismatch(what, file=manifest.folder, hint=hint)
    cases = TASKS.get(manifest.task, _calls)(manifest, settings)
    return [replace(case, peak=peak) for case in cases]


def _peak(manifest: Manifest) -> str:
    """The products that most matrices go through: quantized ones are multiplied as bytes."""
    matrices = [spec for spec in manifest.weights if spec.unpacked is not None]
    quantized = sum(math.prod(spec.logical) for spec in matrices if spec.encoding)
    return INT8 if 2 * quantized > sum(math.prod(spec.logical) for spec in matrices) else FLOAT32


def _generation(manifest: Manifest, settings: Settings) -> Iterator[Case]:
    _refuse(manifest, {"--size": settings.sizes})
    batches = _batches(manifest, settings)
    work, limit = GenerationWork(manifest), _limit(manifest)
    count = settings.tokens or min(TOKENS, (limit or TOKENS * 2) // 2)
    for prompt in settings.prompts or [_fitting(limit, PROMPT, count)]:
        _check_room(manifest, prompt, count)
        sizes = {"prompt": prompt}
        read = work.prefill(prompt).per(prompt)
        yield Case(PREFILL, f"prefill {prompt}", "token", sizes, read, step_units=prompt)
        for texts in batches:
            more, label = {**sizes, "tokens": count}, f"decode at {prompt}"
            if manifest.batch > 1:
                more, label = {**more, "texts": texts}, f"decode {texts}{TIMES} at {prompt}"
            units, made = count * texts, work.decode(prompt, count, texts)
            per = made.per(units)
            yield Case(DECODE, label, "token", more, per, units=units, step_units=texts)


def _embedding(manifest: Manifest, settings: Settings) -> Iterator[Case]:
    _refuse(manifest, {"--size": settings.sizes})
    work = EmbeddingWork(manifest)
    for length in settings.prompts or [_fitting(_limit(manifest), TEXT, 0)]:
        _check_room(manifest, length, 0)
        for batch in settings.batches or BATCHES:
            sizes = {"batch": batch, "length": length}
            of_text = work.embed(batch, length).per(batch)
            yield Case(EMBED, f"embed {batch}{TIMES}{length}", "text", sizes, of_text)


def _batches(manifest: Manifest, settings: Settings) -> Sequence[int]:
    """The numbers of texts that a decoder continues at once: powers of two, and all it can."""
    most = manifest.batch
    if most == 1 and settings.batches:
        what = "--batch means nothing to a model that continues one text at a time"
        raise UsageError(what, file=manifest.folder, hint="compile it with --batch N")
    if wrong := [texts for texts in settings.batches if texts > most]:
        what = f"--batch {wrong[0]}: the model continues at most {most} texts at once"
        raise UsageError(what, file=manifest.folder)
    return settings.batches or sorted({most, *(1 << i for i in range(most.bit_length()))})


def _calls(manifest: Manifest, settings: Settings) -> Iterator[Case]:
    """Yield a case for each entry, at the sizes that are asked for, else at its least ones."""
    _refuse(manifest, {"--prompt": settings.prompts, "--batch": settings.batches})
    named = {name: _names(entry) for name, entry in manifest.entries.items()}
    known = sorted({size for names in named.values() for size in names})
    if unknown := sorted(settings.sizes.keys() - set(known)):
        hint = f"it has {', '.join(known)}" if known else "all its sizes are fixed"
        raise UsageError(f"the model has no size {', '.join(unknown)}", hint=hint)
    for name, entry in manifest.entries.items():
        least = {size: max(entry.least.get(size, 1), 1) for size in named[name]}
        sizes = {size: settings.sizes.get(size, low) for size, low in least.items()}
        label = " ".join([name, *(f"{size}={value}" for size, value in sizes.items())])
        yield Case(CALL, label, "call", sizes, call_work(manifest), entry=name)


TASKS: dict[str | None, Callable[[Manifest, Settings], Iterator[Case]]] = {
    GENERATE: _generation,
    EMBED: _embedding,
}


def _names(entry: EntrySpec) -> list[str]:
    """The named dimensions of an entry's inputs, in the order in which they come."""
    sizes = [size for spec in entry.inputs for size in spec.shape if isinstance(size, str)]
    return list(dict.fromkeys(sizes))


def _refuse(manifest: Manifest, asked: Mapping[str, Sequence[int] | Mapping[str, int]]) -> None:
    """Refuse options that a model of this task has no use for."""
    task = f"a model whose task is {manifest.task}" if manifest.task else "a model without a task"
    for option, values in asked.items():
        if values:
            raise UsageError(f"{option} means nothing to {task}", file=manifest.folder)


def _fitting(limit: int | None, wanted: int, more: int) -> int:
    """Return the wanted length, or as much of it as the context has room for."""
    return wanted if limit is None else max(1, min(wanted, limit - more))


def _check_room(manifest: Manifest, length: int, more: int) -> None:
    limit = _limit(manifest)
    if limit is not None and length + more > limit:
        what = f"a prompt of {length} tokens and {more} more" if more else f"{length} tokens"
        raise ModelMismatch(f"{what} go beyond the context of {limit}", file=manifest.folder)


def _limit(manifest: Manifest) -> int | None:
    """The positions of a model, if they are limited."""
    limit = manifest.limits.get("seq")
    return manifest.context or (limit if isinstance(limit, int) else None)
