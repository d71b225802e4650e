"""Every recipe lowered for GPUs, in each type of its matrices, against transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.weights import open_checkpoint
from tests.artifact.measure import Array, error, recorded
from tests.effort import sampled
from tests.parity.measure import DATA, FOLDERS
from tests.parity.traced import TracedModel
from tests.simt.model import SimulatedModel
from tests.variants.rows import Files, rows

DTYPES = (DType.float32, DType.float16, DType.bfloat16)
ENCODERS = ("tiny-bert", "tiny-distilbert", "tiny-nomic-bert", "tiny-roberta")
OUTPUTS = ("last_hidden_state", "pooler_output")
# Positions that the recorded texts of encoders have, padding included.
CONTEXT = 40
DECODED = 3
# Whose steps run in every type; those of the other models in float32 and bfloat16: the kernels of
# the two types of 16 bits differ in their instructions, not in what they do.
EVERY_TYPE = "tiny-llama"
FEW_TOKENS = 4
# An index chooses fewer of twice as many tokens.
CHOSEN_OF = 6


def cases(*names: str) -> list[object]:
    """A sample of the models in each type; one of them in every type."""
    every = [(name, dtype) for name in names for dtype in DTYPES]
    return sampled(every, *(case for case in every if case[0] == EVERY_TYPE))


def test_a_decoder_computes_what_transformers_does() -> None:
    folder = DATA / "tiny-llama"
    check_logits(SimulatedModel(folder, DType.float16), recorded(folder))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), cases(*FOLDERS))
def test_every_decoder_computes_what_transformers_does(name: str, dtype: DType) -> None:
    """A sequence at once, and in steps over a cache; all in one test, for a model lowered once."""
    folder = DATA / name
    model, expected = SimulatedModel(folder, dtype), recorded(folder)
    check_logits(model, expected)
    if dtype is not DType.float16 or folder.name == EVERY_TYPE:
        check_cached_logits(model, folder, expected["input_ids"][:1])
    if dtype is DType.float32:
        tokens = expected["greedy_tokens"][0, :FEW_TOKENS].tolist()
        assert greedy(model, expected["greedy_prompt"]) == tokens


def check_logits(model: SimulatedModel, expected: Mapping[str, Array]) -> None:
    """The logits of a sequence are those of transformers."""
    actual = model.run("forward", {"input_ids": expected["input_ids"]})["logits"]
    assert apart(actual, expected["logits"], model) <= model.tolerance


def apart(array: Array, expected: Array, model: SimulatedModel) -> float:
    """The relative error; with experts and 16 bits, that of all tokens but a quarter.

    Two experts may be so close that the 16 bits of what they are chosen by decide between them,
    for a token and through attention for those that follow it.
    """
    if not model.chooses_by_rounded_values:
        return error(array, expected)
    each = np.linalg.norm(array - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    return float(np.quantile(each, 0.75))


def check_cached_logits(model: SimulatedModel, folder: Path, ids: Array) -> None:
    """The logits of the last tokens, each read alone, are those of the graph in float64."""
    starts = [0, *range(ids.shape[1] - DECODED, ids.shape[1])]
    expected = TracedModel(open_checkpoint(folder))
    actual, state = [], model.new_state()
    for start, stop in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
        inputs = {"input_ids": ids[:, start:stop], "position": np.array([start], np.int32)}
        actual.append(model.run("decode" if start else "prefill", inputs, state)["logits"])
    assert apart(np.stack(actual, 1), expected.cached(ids, starts), model) <= model.tolerance


def greedy(model: SimulatedModel, prompt: Array) -> list[int]:
    tokens: list[int] = []
    inputs, position, entry, state = prompt, 0, "prefill", model.new_state()
    for _ in range(FEW_TOKENS):
        arrays = {"input_ids": inputs, "position": np.array([position], np.int32)}
        tokens.append(int(model.run(entry, arrays, state)["logits"][0].argmax()))
        position += inputs.shape[1]
        inputs, entry = np.array([[tokens[-1]]]), "decode"
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), cases(*ENCODERS))
def test_hidden_states_are_those_of_transformers(name: str, dtype: DType) -> None:
    folder = DATA / name
    model, expected = SimulatedModel(folder, dtype, CONTEXT), recorded(folder)
    inputs = {name: expected[name] for name in model.entries["forward"].inputs}
    actual = model.run("forward", inputs)
    assert set(actual) == set(OUTPUTS) & set(expected)
    for name, array in actual.items():
        assert error(array, expected[name]) <= model.tolerance, name


@pytest.mark.long
@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
def test_heads_have_sinks(dtype: DType, tmp_path: Path) -> None:
    folder = Files(tmp_path).checkpoint(next(iter(rows("gpt_oss")))).path
    check_cached_logits(SimulatedModel(folder, dtype), folder, np.arange(3, 10)[None])


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("family", "heads"), [("bloom", "n_head"), ("mpt", "n_heads")])
def test_scores_grow_with_positions(family: str, heads: str, dtype: DType, tmp_path: Path) -> None:
    row = max(rows(family), key=lambda one: int(one.config[heads]))
    folder = Files(tmp_path).checkpoint(row).path
    check_cached_logits(SimulatedModel(folder, dtype), folder, np.arange(3, 10)[None])


@pytest.mark.long
def test_an_index_chooses_keys(tmp_path: Path) -> None:
    """Compare in float32 alone: of rounded scores others may be the largest."""
    chosen = (row for row in rows("glm_moe_dsa") if row.config["index_topk"] < CHOSEN_OF)
    folder = Files(tmp_path).checkpoint(next(chosen)).path
    ids = np.random.default_rng(0).integers(3, 11, (1, 2 * CHOSEN_OF))
    check_cached_logits(SimulatedModel(folder, DType.float32), folder, ids)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
def test_states_of_fixed_size_go_on(dtype: DType, tmp_path: Path) -> None:
    """Short convolutions beside attention: read at once, and then a token at a time."""
    mixed = (row for row in rows("lfm2") if len({*row.config["layer_types"]}) > 1)
    folder = Files(tmp_path).checkpoint(next(mixed)).path
    ids = np.random.default_rng(0).integers(3, 11, (1, 9))
    model = SimulatedModel(folder, dtype)
    check_cached_logits(model, folder, ids)
    check_cached_logits(model, folder, ids[:, ::-1])
