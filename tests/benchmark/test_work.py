"""Bytes and multiply-adds, counted from manifests, beside sums that were made by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from maxtool.benchmark.work import EmbeddingWork, GenerationWork, Work, call_work
from maxtool.runtime.loader.specs import BufferSpec, TableSpec, WeightSpec

HIDDEN, HEADS, INNER, TOKENS, CONTEXT = 8, 6, 12, 10, 16
FLOAT = 4


def matrix(name: str, rows: int, columns: int) -> WeightSpec:
    """A packed matrix, in blocks of four rows: the last one is filled up."""
    shape = (-(-rows // 4), columns, 4)
    return WeightSpec(name, "float32", shape, unpacked=(rows, columns))


def vector(name: str, size: int) -> WeightSpec:
    return WeightSpec(name, "float32", (size,))


EMBEDDING = matrix("embed.weight", TOKENS, HIDDEN)
HEAD = matrix("lm_head.weight", TOKENS, HIDDEN)
ANGLES = WeightSpec("rope.cos", "float32", (CONTEXT, 2))
# Of one layer: heads of width 3, two of queries and one of keys.
LAYER = (
    matrix("layers.0.attn.q.weight", HEADS, HIDDEN),
    matrix("layers.0.attn.k.weight", 3, HIDDEN),
    matrix("layers.0.attn.v.weight", 3, HIDDEN),
    matrix("layers.0.attn.o.weight", HIDDEN, HEADS),
    vector("layers.0.attn_norm.weight", HIDDEN),
)
MLP = (matrix("layers.0.mlp.up.weight", INNER, HIDDEN),)
CACHE = tuple(
    BufferSpec(f"cache.0.{name}", "float32", ("batch", 1, CONTEXT, 3), positions=2)
    for name in ("key", "value")
)
TABLES = (TableSpec("embed.weight", "input_ids"), TableSpec("rope.cos", "context"))

# Elements as they lie: 8, 4 and 4 rows of 8, 8 of 6, and the norm.
LAYER_SIZE = 8 * 8 + 4 * 8 + 4 * 8 + 8 * 6 + 8
LAYER_PRODUCTS = 6 * 8 + 3 * 8 + 3 * 8 + 8 * 6
POSITION = 2 * 3 * FLOAT  # bytes of a position of the cache
ROW = 12 * 8 * FLOAT / TOKENS + 2 * FLOAT  # of the embedding, which is filled up, and the angles


def manifest(*weights: WeightSpec, **root: object) -> Any:
    facts = {"tables": TABLES, "state": CACHE, "batch": 1, "entries": {"forward": None}}
    return SimpleNamespace(weights=weights, root=root, **facts)


def test_a_token_reads_all_weights_and_the_cache_so_far() -> None:
    work = GenerationWork(manifest(EMBEDDING, *LAYER, *MLP, HEAD, ANGLES)).decode(5, 1)
    weights = LAYER_SIZE + 12 * 8 + 12 * 8
    # Five positions and its own are read, its own is written.
    assert work.bytes == weights * FLOAT + ROW + 7 * POSITION
    assert work.multiply_adds == LAYER_PRODUCTS + 12 * 8 + TOKENS * HIDDEN + 2 * HEADS * 6
    assert work.operations == 2 * work.multiply_adds


def test_a_tied_head_is_the_embedding() -> None:
    tied = GenerationWork(manifest(EMBEDDING, *LAYER, ANGLES)).decode(0, 1)
    assert tied.bytes == (LAYER_SIZE + 12 * 8) * FLOAT + ROW + 2 * POSITION
    assert tied.multiply_adds == LAYER_PRODUCTS + TOKENS * HIDDEN + 2 * HEADS


def test_tokens_add_up() -> None:
    work = GenerationWork(manifest(EMBEDDING, *LAYER, HEAD, ANGLES))
    single = [work.decode(start, 1) for start in range(3, 7)]
    together = work.decode(3, 4)
    assert together.bytes == pytest.approx(sum(one.bytes for one in single))
    assert together.multiply_adds == sum(one.multiply_adds or 0 for one in single)
    assert together.per(4) == Work(together.bytes / 4, (together.multiply_adds or 0) / 4)


def test_texts_side_by_side_read_weights_once() -> None:
    slotted = manifest(EMBEDDING, *LAYER, HEAD, ANGLES)
    slotted.batch = 4
    slotted.state = [replace(spec, shape=(4, *spec.shape[1:])) for spec in CACHE]
    single = GenerationWork(manifest(EMBEDDING, *LAYER, HEAD, ANGLES)).decode(3, 2)
    together = GenerationWork(slotted).decode(3, 2, texts=3)
    weights = 2 * (LAYER_SIZE + 12 * 8) * FLOAT  # in each of two calls
    assert together.bytes - weights == pytest.approx(3 * (single.bytes - weights))
    assert together.multiply_adds == 3 * (single.multiply_adds or 0)


def test_a_prompt_reads_weights_once_and_computes_one_row_of_the_head() -> None:
    work = GenerationWork(manifest(EMBEDDING, *LAYER, HEAD, ANGLES)).prefill(4)
    assert work.bytes == (LAYER_SIZE + 12 * 8) * FLOAT + 4 * ROW + 8 * POSITION
    assert work.multiply_adds == 4 * LAYER_PRODUCTS + TOKENS * HIDDEN + 2 * HEADS * (1 + 2 + 3 + 4)


def test_a_window_bounds_what_a_query_sees() -> None:
    plain = GenerationWork(manifest(EMBEDDING, *LAYER, ANGLES))
    sliding = GenerationWork(manifest(EMBEDDING, *LAYER, ANGLES, windows=[3]))
    for start, hidden in ((0, 0), (2, 0), (7, 5)):
        before, after = plain.decode(start, 1), sliding.decode(start, 1)
        assert before.bytes - after.bytes == pytest.approx(hidden * POSITION)
        assert (before.multiply_adds or 0) - (after.multiply_adds or 0) == 2 * HEADS * hidden


def test_tokens_go_through_some_experts() -> None:
    experts = WeightSpec("mlp.up.weight", "float32", (5, 3, HIDDEN, 4), unpacked=(5, 10, HIDDEN))
    with_experts = GenerationWork(manifest(EMBEDDING, *LAYER, experts, ANGLES, n_experts_used=2))
    without = GenerationWork(manifest(EMBEDDING, *LAYER, ANGLES))
    size = 3 * HIDDEN * 4 * FLOAT
    for rows, read in ((1, 2), (2, 4), (3, 5)):  # of five experts at most five are read
        more, less = with_experts.prefill(rows), without.prefill(rows)
        assert more.bytes - less.bytes == pytest.approx(read * size)
        assert (more.multiply_adds or 0) - (less.multiply_adds or 0) == rows * 2 * 10 * HIDDEN


def test_an_encoder_looks_rows_up_and_attends_to_all() -> None:
    pooler = matrix("pooler.weight", HIDDEN, HIDDEN)
    work = EmbeddingWork(manifest(EMBEDDING, *LAYER, pooler, ANGLES)).embed(2, 3)
    assert work.bytes == LAYER_SIZE * FLOAT + 2 * 3 * ROW
    assert work.multiply_adds == 6 * LAYER_PRODUCTS + 2 * (2 * HEADS * 3 * 3)


def test_of_a_module_only_the_weights_are_known() -> None:
    whole = call_work(manifest(*LAYER))
    assert whole == Work(LAYER_SIZE * FLOAT, None)
    assert whole.operations is None
    several = manifest(*LAYER)
    several.entries["backward"] = None
    assert call_work(several) is None


@pytest.mark.parametrize("value", ["2", 0, -1, None])
def test_a_manifest_that_says_nonsense_counts_all_experts(value: object) -> None:
    experts = WeightSpec("mlp.up.weight", "float32", (5, 3, HIDDEN, 4), unpacked=(5, 10, HIDDEN))
    work = GenerationWork(manifest(EMBEDDING, experts, n_experts_used=value)).decode(0, 1)
    assert work.bytes >= experts.nbytes()
