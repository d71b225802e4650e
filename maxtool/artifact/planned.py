"""A compilation that was planned, whatever its source, and what all of them ask before they run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from maxtool.artifact import machine_code, replaceable, weights
from maxtool.artifact.check import PassedCheck, check
from maxtool.artifact.contents import Contents
from maxtool.artifact.module_check import trials_of
from maxtool.artifact.observed import Observe
from maxtool.artifact.request import CacheType, Wanted
from maxtool.compiler.linking import is_native
from maxtool.compiler.targets import Target, parse_target
from maxtool.errors import UsageError
from maxtool.files import check_output, check_space, shortage
from maxtool.weights import Checkpoint

# What else an artifact takes, beside its weights: code, manifest, tokenizer.
SPARE_BYTES = 16 << 20


@dataclass
class Planned:
    """A compilation that has been planned, and fits."""

    request: Wanted
    contents: Contents
    checkpoint: Checkpoint | None  # with the values of the weights; None if they are in no file
    notes: list[str]  # worth knowing before it is run
    # What is told of every output that is checked here, if that is set.
    observe: Observe | None = field(init=False, default=None, repr=False)

    @property
    def target(self) -> Target:
        """The target."""
        return self.contents.target

    @property
    def weight_bytes(self) -> int:
        """The size of the weights, in all files."""
        return weights.total_bytes(self.contents)

    @property
    def kv_dtype(self) -> CacheType | None:
        """The type of keys and values in a decoder's cache; None for other models."""
        return None

    def quick_reading(self) -> AbstractContextManager[None]:
        """Have weights read as fast as they can be within; code may be compiled for that first."""
        return nullcontext()

    def compare(self, folder: Path) -> PassedCheck:
        """Compare with the graphs in float64, or record what they give for another machine."""
        trials = trials_of(self.contents)
        return check(folder, trials, here=self.target.host, observe=self.observe)

    def check_unchanged(self) -> None:
        """Check that the checkpoint is what it was when it was planned."""
        if self.checkpoint is not None:
            self.checkpoint.check_unchanged()

    def check_machine(self) -> None:
        """Check that what compiles and links is here."""
        machine_code.require_tools(self.target)

    @property
    def _needed(self) -> int:
        return self.weight_bytes + SPARE_BYTES

    @property
    def shortage(self) -> str | None:
        """Tell that there is no room for the artifact, where there is none."""
        return shortage(self.request.output, self._needed)

    def check_space(self) -> None:
        """Check that there is room for the artifact."""
        check_space(self.request.output, self._needed)


def check_place(request: Wanted, sources: tuple[Path, ...] = ()) -> None:
    """Check that an artifact may be written where it was asked for, over no source."""
    check_output(request.output, force=request.force, sources=sources)
    replaceable.check(request.output)


def target_of(request: Wanted) -> Target:
    """Return the target; refuse one whose runtime libraries do not run on this machine."""
    target = parse_target(request.target, ptx=request.ptx)
    if request.standalone and not is_native(target.processor):
        raise UsageError(
            f"--standalone copies this machine's libraries, and {request.target} is another kind",
            hint="omit it, and install apache-tvm there",
        )
    return target
