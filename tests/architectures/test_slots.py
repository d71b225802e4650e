"""A decoder whose cache has slots computes for each text what it computes for that text alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maxtool.architectures import CacheLayout, Decoder, build, graph_of
from maxtool.dtype import DType
from maxtool.graph import Tensor, executor
from maxtool.parity import evaluate
from tests.architectures.decoders import CONFIG, fill
from tests.effort import sampled, thinned

Array = np.ndarray[Any, Any]
Step = Callable[[list[Array]], Array]

SLOTS, CONTEXT = 5, 24
TEXTS = np.random.default_rng(1).integers(0, 11, (SLOTS, CONTEXT))
# Tokens of the text of each slot that are read at a time: several are one call, and single ones of
# different slots are a call together. A slot whose number stands in no step is idle.
PLAN: tuple[Mapping[int, int], ...] = (
    {3: 9},
    {3: 1},
    {0: 2},
    {3: 1, 0: 1},
    {2: 13},
    {0: 1, 2: 1},
    {2: 1, 3: 1, 0: 1, 4: 1},
    {3: 5},
    {4: 1, 2: 1, 0: 1, 3: 1, 1: 1},
    {1: 1},
    {0: 1, 1: 1, 2: 1, 3: 1, 4: 1},
)

# Blocks would round the positions that are elements of heads.
UNBLOCKED = "linear biases"
# What rounds a cache may change the choice.
CHOOSING = "indexed"
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding": {"sliding_window": 5, "sliding_layers": (True, False, True)},
    "shared": {
        "sliding_window": 5,
        "sliding_layers": (True, False, True),
        "kv_shared_layers": 1,
        "layer_embed_size": 3,
        "streams": 3,
        "active_stream": 1,
    },
    "convolved": {"conv_taps": 3, "conv_bias": True, "attention_layers": (False, True, False)},
    "scanned": {
        "mixer": "mamba",
        "conv_taps": 3,
        "state_heads": 4,
        "state_key_heads": 2,
        "state_key_dim": 3,
        "state_value_dim": 5,
        "attention_layers": (False, True, False),
    },
    "selective": {
        "mixer": "selective",
        "conv_taps": 3,
        "state_key_dim": 3,
        "state_value_dim": 10,
        "step_rank": 2,
        "attention_layers": (False, True, False),
    },
    "learned": {"position": "learned"},
    UNBLOCKED: {"position": "alibi"},
    CHOOSING: {
        "n_kv_heads": 4,
        "latent_size": 6,
        "query_latent_size": 5,
        "plain_dim": 2,
        "rotary_dim": 2,
        "index_topk": 5,
        "index_heads": 16,
        "index_dim": 6,
        "index_layers": (True, False, True),
    },
    "experts": {"n_experts": 3, "n_experts_used": 2},
    "by length": {
        "rope_scaling": "longrope",
        "rope_original_context": 12,
        "rope_long_factors": (2.0, 5.0),
        "rope_short_factors": (1.0, 1.5),
    },
}


def config_of(kind: str, dtype: DType) -> dict[str, Any]:
    """The configuration; with heads of a whole block for a cache in Q8_0."""
    config = CONFIG | {"context_length": CONTEXT} | KINDS[kind]
    if dtype is not DType.int8:
        return config
    factors = {name: 8 * value for name, value in config.items() if name.endswith("_factors")}
    return config | factors | {"head_dim": 32}


def read_in_turns(calls: Mapping[str, Step], cache: list[Array]) -> dict[Any, Any]:
    """The logits behind each part of each text, by slot and by the tokens read."""
    read, results = dict.fromkeys(range(SLOTS), 0), {}
    for step in PLAN:
        (length, *_), slots = step.values(), list(step)
        ids = np.stack([TEXTS[slot, read[slot] : read[slot] + length] for slot in slots])
        places = [np.array([read[slot] for slot in slots], "i4"), np.array(slots, "i4")]
        logits = calls["decode" if length == 1 else "prefill"]([ids, *places, *cache])
        for slot, row in zip(slots, logits, strict=True):
            read[slot] += length
            results[slot, read[slot]] = row
    return results


def compiled(model: Decoder) -> dict[str, Step]:
    def call(graph: Any) -> Step:
        weights = model.state_dict() | {n: w.to_numpy() for n, w in graph.owners.items()}
        run = executor.find_executor().compile(graph, weights)
        return lambda arrays: run(*map(Tensor, arrays))[0].to_numpy()

    return {entry.name: call(graph_of(model, entry)) for entry in model.entries()[1:]}


def evaluated(model: Decoder) -> dict[str, Step]:
    def call(graph: Any) -> Step:
        weights = model.state_dict() | {n: w.to_numpy() for n, w in graph.owners.items()}
        return lambda arrays: evaluate(graph, arrays, weights)[0]

    return {entry.name: call(graph_of(model, entry)) for entry in model.entries()[1:]}


def zeros(model: Decoder, dtype: Any = None) -> list[Array]:
    kinds = model.cache().values()
    return [np.zeros(kind.shape.static(), dtype or kind.dtype.to_numpy()) for kind in kinds]


def expected(
    config: dict[str, Any], form: CacheLayout, parts: Sequence[int], text: Array
) -> list[Array]:
    """The logits behind each part of one text by the graphs for one text, in float64."""
    model = build("decoder", config, form=form)
    fill(model)
    _, prefill, decode = (graph_of(model, entry) for entry in model.entries())
    cache = [np.zeros([1, *map(int, type_.shape[1:])]) for type_ in model.cache().values()]
    at, results = 0, []
    for length in parts:
        graph = decode if length == 1 else prefill
        weights = model.state_dict() | {n: w.to_numpy() for n, w in graph.owners.items()}
        arrays = [text[None, at : at + length], np.array([at], "i4"), *cache]
        results.append(evaluate(graph, arrays, weights)[0][0])
        at += length
    return results


FORMS = [
    (dtype, kind)
    for dtype in (DType.float32, DType.bfloat16, DType.int8)
    for kind in KINDS
    if (dtype, kind) != (DType.int8, UNBLOCKED) and (dtype is DType.float32 or kind != CHOOSING)
]


SINGLE = [form for form in FORMS if form[0] is DType.float32]


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize(("dtype", "kind"), sampled(thinned(FORMS, *SINGLE), *SINGLE))
def test_texts_of_any_length_side_by_side(kind: str, dtype: DType) -> None:
    config = config_of(kind, dtype)
    form = CacheLayout(dtype, slides=True, slots=SLOTS)
    model = build("decoder", config, form=form)
    assert isinstance(model, Decoder)
    fill(model)
    wide = read_in_turns(evaluated(model), zeros(model, "f8"))
    narrow = read_in_turns(compiled(model), zeros(model))
    for slot, text in enumerate(TEXTS):
        parts = [step[slot] for step in PLAN if slot in step]
        alone = expected(config, replace(form, slots=1), parts, text)
        for end, logits in zip(np.cumsum(parts), alone, strict=True):
            np.testing.assert_allclose(wide[slot, end], logits, rtol=1e-9, atol=1e-9)
            bound = 1e-4 if dtype is DType.float32 else 0.1
            np.testing.assert_allclose(narrow[slot, end], logits, rtol=bound, atol=bound)


def test_what_the_manifest_says() -> None:
    model = build("decoder", CONFIG, form=CacheLayout(slots=SLOTS))
    assert isinstance(model, Decoder)
    assert model.facts["batch"] == SLOTS
    assert model.limits["slot"] == (0, SLOTS - 1)
    assert {int(kind.shape[0]) for kind in model.cache().values()} == {SLOTS}
    _, prefill, decode = model.entries()
    shapes = {name: list(map(str, kind.shape)) for name, kind in decode.inputs.items()}
    assert shapes == {"input_ids": ["batch", "1"], "position": ["batch"], "slot": ["batch"]}
    shapes = {name: list(map(str, kind.shape)) for name, kind in prefill.inputs.items()}
    assert shapes == {"input_ids": ["1", "seq"], "position": ["1"], "slot": ["1"]}
    assert "batch" not in build("decoder", CONFIG).facts
