"""The options by which matrices are quantized, which convert and compile share."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from maxtool.cli import complete, options
from maxtool.errors import UsageError

if TYPE_CHECKING:
    from maxtool.cli.output import Output
    from maxtool.quantization.scheme import Scheme, StoredType


@dataclass(frozen=True)
class QuantizeOptions:
    """The type of quantized matrices, and exceptions from it."""

    quantize: Annotated[
        str | None,
        typer.Option(
            "--quantize",
            metavar="TYPE",
            help="Quantize matrices, as llama-quantize does: Q4_K_M, Q8_0, ...",
            autocompletion=complete.mixes,
        ),
    ] = None
    pure: Annotated[
        bool, options.flag("--pure", help="With --quantize: that type for all matrices, no mix.")
    ] = False
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor-type",
            metavar="GLOB=TYPE",
            help="With --quantize: another type for GGUF tensors of such names; may be repeated, "
            "the last that matches counts.",
            autocompletion=complete.glob_and(complete.stored_types),
        ),
    ] = None
    output_tensor_type: Annotated[
        str | None,
        typer.Option(
            "--output-tensor-type",
            metavar="TYPE",
            help="With --quantize: the type of the head.",
            autocompletion=complete.stored_types,
        ),
    ] = None
    token_embedding_type: Annotated[
        str | None,
        typer.Option(
            "--token-embedding-type",
            metavar="TYPE",
            help="With --quantize: the type of the embedding of tokens.",
            autocompletion=complete.stored_types,
        ),
    ] = None
    imatrix: Annotated[
        str | None,
        typer.Option(
            "--imatrix",
            metavar="FILE",
            help="With --quantize: llama.cpp's importance matrix, by which columns are weighed.",
        ),
    ] = None
    allow_requantize: Annotated[
        bool,
        options.flag("--allow-requantize", help="With --quantize: even what is quantized already."),
    ] = False
    strict: Annotated[
        bool,
        options.flag("--strict", help="With --quantize: fail where rows are not whole blocks."),
    ] = False

    def parsed(self, out: Output) -> Scheme | None:
        """The scheme that the options ask for together; None without ``--quantize``.

        An importance matrix that is not on this machine is brought.
        """
        if self.quantize is None:
            self._refuse_others()
            return None
        scheme, head, embedding = (
            _named(self.quantize),
            self.output_tensor_type,
            self.token_embedding_type,
        )
        return replace(
            scheme,
            pure=self.pure or scheme.pure,
            overrides=tuple(map(_parse_override, self.tensor_type or ())),
            head=None if head is None else _parse_type("--output-tensor-type", head),
            embedding=None
            if embedding is None
            else _parse_type("--token-embedding-type", embedding),
            importance=options.source_path(out, self.imatrix, "file"),
            requantize=self.allow_requantize,
            strict=self.strict,
        )

    def _refuse_others(self) -> None:
        """Refuse options that say how to quantize where nothing is quantized."""
        others = [field.name for field in fields(self) if getattr(self, field.name)]
        if asked := [f"--{name.replace('_', '-')}" for name in others]:
            what = f"{', '.join(asked)}: without --quantize nothing is quantized"
            raise UsageError(what, hint="add --quantize Q4_K_M, or another type")


def _named(name: str) -> Scheme:
    from maxtool.quantization.scheme import Scheme

    try:
        return Scheme.named(name.upper())
    except KeyError:
        what = f"--quantize {name!r:.80} is not a type that can be written"
        hint = f"there are {', '.join(complete.mix_names())}"
        raise UsageError(what, hint=hint) from None


def _parse_override(text: str) -> tuple[str, StoredType]:
    glob, equals, name = text.rpartition("=")
    if not equals or not glob:
        hint = "such as --tensor-type '*.attn_v.weight=Q6_K'"
        raise UsageError(f"--tensor-type {text!r:.80} is not GLOB=TYPE", hint=hint)
    return glob, _parse_type("--tensor-type", name)


def _parse_type(option: str, name: str) -> StoredType:
    """The type of a tensor that a user names, of blocks or of elements."""
    known = complete.writable_types()
    if (chosen := known.get(name.upper())) is None:
        hint = f"there are {', '.join(known)}"
        raise UsageError(f"{option} {name!r:.80} is not a type that can be written", hint=hint)
    return chosen
