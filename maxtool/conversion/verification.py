"""Verification of what was written: the safetensors library itself opens it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from maxtool.dtype import TABLE
from maxtool.errors import VerificationFailed
from maxtool.weights import TensorSpec
from maxtool.weights.names import listed

HINT = "nothing was kept; convert again, and report this if it happens twice"


def verify_safetensors(written: Path, specs: Sequence[TensorSpec], output: Path) -> None:
    """Open a safetensors file with the library, which checks its header and its size.

    It must list the names, types and shapes of ``specs``. Errors name the ``output`` that the file
    belongs to.
    """
    expected = {spec.name: f"{TABLE[spec.dtype].safetensors} {list(spec.shape)}" for spec in specs}
    try:
        with safe_open(written, "np") as file:
            listing = {name: _description(file.get_slice(name)) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        what = f"the safetensors library cannot read the output: {error}"
        raise VerificationFailed(what, file=output, hint=HINT) from None
    problems = [
        f"{name}: {listing.get(name, 'missing')}, not {expected.get(name, 'in it')}"
        for name in sorted(expected.keys() | listing.keys())
        if listing.get(name) != expected.get(name)
    ]
    if problems:
        what = "the safetensors library reads other tensors than were to be written"
        raise VerificationFailed(what, file=output, problems=listed(problems), hint=HINT)


def _description(tensor: Any) -> str:  # noqa: ANN401 - the library has no name for it
    return f"{tensor.get_dtype()} {tensor.get_shape()}"
