"""Options of ``maxtool convert`` in groups, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maxtool.cli import complete, options, sizes
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from maxtool.cli.output import Output
    from maxtool.dtype import DType


@dataclass(frozen=True)
class FileOptions:
    """The files of the output."""

    shard_size: Annotated[
        str | None,
        typer.Option(
            "--shard-size",
            metavar="SIZE",
            help="Tensors of a shard of safetensors at most: 5GB, 500MiB, ...",
        ),
    ] = None
    split_max_size: Annotated[
        str | None,
        typer.Option(
            "--split-max-size",
            metavar="SIZE",
            help="Tensors of a split of GGUF at most: 2G, 500M, ...",
        ),
    ] = None
    resume: Annotated[
        bool,
        options.flag("--resume", help="Keep finished files if interrupted, and go on with them."),
    ] = False

    def parsed(self) -> dict[str, Any]:
        """The fields of a request that these options say."""
        return {
            "shard_size": sizes.parse_size(self.shard_size, "--shard-size"),
            "split_max_size": sizes.parse_size(self.split_max_size, "--split-max-size"),
            "resume": self.resume,
        }


@dataclass(frozen=True)
class CheckOptions:
    """Checks of the output."""

    verify: Annotated[
        bool, options.flag("--verify", help="Read the output back, and compare every tensor.")
    ] = False
    sha256: Annotated[
        bool, options.flag("--sha256", help="Write a list of checksums, as sha256sum reads it.")
    ] = False
    if_changed: Annotated[
        bool,
        options.flag("--if-changed", help="Replace an output unless it would be the same."),
    ] = False


Texts = list[str] | None


def _texts(name: str, metavar: str, text: str) -> object:
    return typer.Option(name, metavar=metavar, help=text)


@dataclass(frozen=True)
class EditOptions:
    """The names, types and metadata of the output."""

    include: Annotated[Texts, _texts("--include", "GLOB", "Write these tensors only.")] = None
    exclude: Annotated[Texts, _texts("--exclude", "GLOB", "Leave these tensors out.")] = None
    rename: Annotated[
        Texts, _texts("--rename", "OLD=NEW", "Rename dotted segments; * is any one.")
    ] = None
    cast: Annotated[
        Texts,
        typer.Option(
            "--cast",
            metavar="GLOB=TYPE",
            help="Element type of these tensors; the last counts.",
            autocompletion=complete.glob_and(complete.float_types),
        ),
    ] = None
    set_: Annotated[Texts, _texts("--set", "KEY=VALUE", "Set a key of the metadata.")] = None
    remove: Annotated[Texts, _texts("--remove", "KEY", "Remove a key of the metadata.")] = None
    merge_lora: Annotated[
        str | None,
        typer.Option(
            "--merge-lora", metavar="FOLDER", help="Merge a LoRA adapter of peft into the weights."
        ),
    ] = None
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="PATH",
            help="The base model of SOURCE, an adapter: folder or GGUF file.",
        ),
    ] = None
    no_recipe: Annotated[
        bool, options.flag("--no-recipe", help="Copy tensors under their names, without a recipe.")
    ] = False
    allow_nonfinite: Annotated[
        bool,
        options.flag("--allow-nonfinite", help="Cast NaN, infinities and what becomes infinite."),
    ] = False

    def parsed(self, out: Output, headers: ExitStack | None = None) -> dict[str, Any]:
        """The fields of a request that these options say; what they name is brought.

        Of a base model only the header is, where ``headers`` keeps it while it is needed.
        """
        from maxtool.conversion.edit_request import MetadataEdits, TensorEdits

        for option, texts in self._texts.items():
            _check_utf8(option, texts)
        casts = tuple(
            (glob, parse_float(name)) for glob, name in _pairs("--cast", self.cast, last=True)
        )
        edits = TensorEdits(
            tuple(self.include or ()),
            tuple(self.exclude or ()),
            _pairs("--rename", self.rename),
            casts,
        )
        metadata = MetadataEdits(_pairs("--set", self.set_), tuple(self.remove or ()))
        return {
            "edits": edits,
            "metadata": metadata,
            "adapter": options.source_path(out, self.merge_lora),
            "base": options.configuration_path(out, self.base, headers),
            "plain": self.no_recipe,
            "allow_nonfinite": self.allow_nonfinite,
        }

    @property
    def _texts(self) -> dict[str, Texts]:
        """The texts that name tensors and keys, by option."""
        of_names = {"--include": self.include, "--exclude": self.exclude, "--rename": self.rename}
        return of_names | {"--cast": self.cast, "--set": self.set_, "--remove": self.remove}


def _check_utf8(option: str, texts: Texts) -> None:
    """Refuse bytes of the command line that are not text, which no file can hold as a name."""
    from maxtool.weights.names import is_utf8

    for text in texts or ():
        if not is_utf8(text):
            raise UsageError(f"{option} {text!r:.80} is not UTF-8")


def _pairs(option: str, texts: Texts, *, last: bool = False) -> tuple[tuple[str, str], ...]:
    """The two sides of the first, or the last, equals sign of each text."""
    parts = [text.rpartition("=") if last else text.partition("=") for text in texts or ()]
    for left, sign, right in parts:
        if not sign or not left:
            raise UsageError(
                f"{option} takes two sides of an equals sign, not {left + right!r:.80}"
            )
    return tuple((left, right) for left, _, right in parts)


def parse_float(text: str) -> DType:
    """The floating-point type that a user names for some tensors."""
    from maxtool.dtype import DType

    name = options.ALIASES.get(text.lower(), text.lower())
    floats = [dtype.value for dtype in DType if dtype.is_float()]
    if name not in floats:
        raise UsageError(f"--cast {text!r:.80} is not one of {', '.join(floats)}")
    return DType(name)
