"""The payloads of a file, made by several threads, ahead of what is being written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import takewhile

from maxtool.conversion.output_tensors import Origin, TensorSource, is_rounded
from maxtool.conversion.streaming import (
    CHUNK_BYTES,
    Call,
    Made,
    calls,
    made,
    put_together,
    stored_slabs,
)
from maxtool.conversion.verbatim import StoredRun, copied, stored_runs
from maxtool.parallel import in_order
from maxtool.recipe import OutputTensor, Plan
from maxtool.recipe.quantized_types import QuantizedTypes
from maxtool.weights import Checkpoint, TensorSpec
from maxtool.weights.formats.payload import Chunked, Payload

# Stands behind the portions of each tensor.
_END = Made([])


@dataclass(frozen=True)
class PayloadMaker:
    """Maker of the tensors of an output from those of a checkpoint.

    Attributes:
        checkpoint: The source.
        plan: The source, matched with its recipe; None where no tensor is made by rules.
        quantized: How tensors are quantized.
        jobs: How many threads read and convert.
        allow_nonfinite: Whether NaN, infinities and what becomes infinite are cast.
    """

    checkpoint: Checkpoint
    plan: Plan | None
    quantized: QuantizedTypes
    jobs: int
    allow_nonfinite: bool

    @contextmanager
    def payloads(
        self,
        tensors: Sequence[TensorSource],
        warn: Callable[[str], None] = lambda _: None,
        rounded: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Iterator[Payload]]:
        """Yield the payloads of tensors, in order; each is to be used up before the next.

        Threads make them ahead until the block ends.
        ``warn`` is told what is odd about the values, ``rounded`` the names of tensors whose values
        the recipe's operations round. What is held is bounded by ``jobs`` and, of tensors that are
        rearranged within their rows, by the largest.
        """
        runs = [stored_runs(self.checkpoint, self.plan, *tensor) for tensor in tensors]
        made = [tensor for tensor, stored in zip(tensors, runs, strict=True) if stored is None]
        with closing(in_order(self._calls(made, rounded), self.jobs)) as results:
            yield (
                self._payload(*tensor, stored, results, warn)
                for tensor, stored in zip(tensors, runs, strict=True)
            )

    def _payload(
        self,
        spec: TensorSpec,
        origin: Origin,
        runs: list[StoredRun] | None,
        results: Iterator[Made],
        warn: Callable[[str], None],
    ) -> Payload:
        if runs is not None:
            return copied(self.checkpoint, spec, runs, warn, self.jobs)
        if not isinstance(origin, OutputTensor | str):
            return origin
        portions = takewhile(lambda portion: portion is not _END, results)
        arrays = put_together(portions, spec, warn, allow_nonfinite=self.allow_nonfinite)
        return Chunked(spec.stored_dtype, spec.stored_shape, arrays)

    def _calls(
        self, tensors: Sequence[TensorSource], rounded: Callable[[str], None]
    ) -> Iterator[Call | None]:
        """The calls that make all tensors; None where a large one is made whole."""
        for spec, origin in tensors:
            if isinstance(origin, str):
                encoding = self.checkpoint.tensors[origin].encoding
                yield from made(stored_slabs(self.checkpoint.stored(origin)), spec, encoding)
            elif isinstance(origin, OutputTensor):
                yield from self._by_rules(spec, origin, rounded)
            else:
                continue
            yield lambda: _END

    def _by_rules(
        self, spec: TensorSpec, origin: OutputTensor, rounded: Callable[[str], None]
    ) -> Iterator[Call | None]:
        assert self.plan is not None  # noqa: S101 - for the type checker
        if origin.may_round and 4 * spec.size > CHUNK_BYTES:
            yield None
        if is_rounded(self.plan, origin):
            rounded(origin.name)
        chosen = self.quantized.types.get(origin.name)
        yield from calls(self.plan, spec, origin, None if chosen is None else chosen.importance)
