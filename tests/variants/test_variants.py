"""Every key of a configuration, changed: outputs change as transformers' do, or it is refused.

What transformers makes of some ten thousand configurations that differ from a tiny checkpoint's in
one key is recorded (``tests/data/variants``). Ours are computed without a compiler, from what the
recipe reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from maxtool.conversion import Request, convert, prepare
from maxtool.errors import MaxtoolError
from maxtool.recipe import Plan
from maxtool.weights import Checkpoint, open_checkpoint
from tests.data.seeded import Array
from tests.effort import sampled as some_of
from tests.effort import thinned
from tests.variants import ours, refused
from tests.variants.rows import (
    ALLOWED,
    FAMILIES,
    TINY,
    Files,
    Row,
    error,
    inputs,
    rows,
    sampled,
    unpadded,
)

SOME = 8
"""Of so many rows the fast tests take one. The values of a key stand beside each other."""

# Keys that no recipe may refuse to follow, where transformers does.
UNDERSTOOD = frozenset(
    ["intermediate_size", "layer_norm_epsilon", "n_inner", "norm_epsilon", "num_experts_per_tok"]
) | {"rms_norm_eps", "rope_theta", "sliding_window", "vocab_size"}


# llama.cpp has no place for the biases of Falcon's first form, or for relu in DistilBERT, whatever
# else is changed.
WITHOUT_GGUF = ("tiny-falcon-rw",)


class Ours:
    """maxtool's results for the rows of one family; equal inputs are computed once."""

    def __init__(self) -> None:
        self._computed: dict[tuple[Path, str], Array] = {}

    def outputs(self, row: Row, plan: Plan) -> Array:
        """A few outputs, as they were recorded."""
        key = (plan.checkpoint.path, ours.meaning(plan))
        if key not in self._computed:
            self._computed[key] = sampled(row, ours.outputs(plan, inputs(row)))
        return self._computed[key]


# Where these are set the model is an embedder, whose outputs are vectors and not logits.
EMBEDS = {"use_bidirectional_attention"}


def accepted(files: Files, chosen: Iterable[Row]) -> Iterator[tuple[Row, Checkpoint, Array]]:
    """The rows that maxtool does not refuse, and what it computes of them."""
    known = Ours()
    for row in chosen:
        if EMBEDS & row.change.get("set", {}).keys():
            continue
        checkpoint = files.checkpoint(row)
        try:
            result = known.outputs(row, ours.planned(checkpoint))
        except MaxtoolError as refusal:
            assert row.change, f"{row}: {refusal}"
            assert not understood(row), f"{row}: {refusal}"
            continue
        yield row, checkpoint, result


def understood(row: Row) -> bool:
    """Return whether it must not be refused."""
    keys = UNDERSTOOD & row.usual.keys() & row.change.get("set", {}).keys()
    return row.expected is not None and bool(keys)


def wrong(row: Row, array: Array) -> Iterator[str]:
    """A line where outputs are others than those of transformers; which may refuse, too."""
    if row.expected is not None and (off := error(array, row.expected)) > ALLOWED:
        known = "does not change" if row.alike else "changes"
        yield f"{row}: {off:.1e} off, where transformers {known}"


# A family of each kind; the others share most of their recipe with one of these.
KINDS = (
    *("tiny-bert", "tiny-falcon", "tiny-gemma3", "tiny-gpt2", "tiny-llama"),
    *("tiny-phi3-longrope", "tiny-qwen3-moe", "tiny-smollm3"),
)


@pytest.mark.sampled
@pytest.mark.parametrize("family", thinned(TINY, *KINDS))
def test_some_keys(family: str, tmp_path: Path) -> None:
    chosen = [row for place, row in enumerate(rows(family)) if place % SOME == 0 or not row.change]
    result = accepted(Files(tmp_path), chosen)
    assert not [line for row, _, outputs in result for line in wrong(row, outputs)]


@pytest.mark.slow
@pytest.mark.parametrize("family", some_of(TINY, share=4))
def test_every_key(family: str, tmp_path: Path) -> None:
    result = accepted(Files(tmp_path), rows(family))
    assert not [line for row, _, outputs in result for line in wrong(row, outputs)]


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("family", some_of(thinned(FAMILIES, *KINDS), *KINDS))
def test_refusals(family: str, tmp_path: Path) -> None:
    """Refuse no configuration that was read before, and read none that was refused."""
    assert [*refused.refused(family, tmp_path)] == refused.recorded()[family]


@pytest.mark.slow
@pytest.mark.parametrize("family", some_of(TINY, share=4))
def test_through_gguf(family: str, tmp_path: Path) -> None:
    """Compute the same after conversion to GGUF, or refuse it."""
    (tmp_path / "hf").mkdir()
    known, problems, done, compared = Ours(), [], set[str](), 0
    told = [row for row in rows(family) if not has_padding_inside(row)]
    for row, checkpoint, result in accepted(Files(tmp_path / "hf"), told):
        means = ours.meaning(ours.planned(checkpoint))
        if means in done:
            continue
        done.add(means)
        file = tmp_path / f"{len(done)}.gguf"
        try:
            convert(prepare(Request(checkpoint.path, file)))
            again = known.outputs(row, ours.planned(open_checkpoint(file)))
        except MaxtoolError:
            continue
        compared += 1
        if error(again, result) > ALLOWED:
            problems.append(f"{row}: {error(again, result):.1e} off")
    assert bool(compared) == (family not in WITHOUT_GGUF)
    assert not problems


def has_padding_inside(row: Row) -> bool:
    """Return whether RoBERTa skips positions of the recorded text.

    Which token is padding is told by a GGUF file's vocabulary, and these files have none.
    """
    ids = unpadded(row, inputs(row)["input_ids"])
    return row.config["model_type"] == "roberta" and row.config.get("pad_token_id", 1) in ids


def test_a_difference_is_seen() -> None:
    row = next(rows(TINY[0]))
    assert row.expected is not None
    assert not list(wrong(row, row.expected))
    assert list(wrong(row, row.expected * np.float64(1 + 2 * ALLOWED)))
