"""Compiled models of two texts write what transformers wrote with the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool import artifact
from maxtool.errors import UsageError
from maxtool.runtime import loader
from maxtool.runtime.loader.specs import TEXT_TO_TEXT
from maxtool.runtime.loader.writing_rules import WritingRules, repeating
from maxtool.runtime.loader.writing_spec import WritingSpec, writing_spec
from tests.artifact.making import made
from tests.artifact.measure import error
from tests.data.seq2seq_inputs import WRITTEN, sources
from tests.parity.seq2seq import outputs
from tests.parity.test_seq2seq import BOUND, CASES, RECORDED, written

RECIPES = {name: f"{name}-0" for name in ("bart", "mbart", "t5", "mt5", "umt5")}


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("recipe", RECIPES)
def test_check_passes(recipe: str, tmp_path: Path) -> None:
    case = RECIPES[recipe]
    config, expected = CASES[case]["config"], CASES[case]["written"]
    model = loader.load(made(written(case, tmp_path / "model"), check=True))
    assert (model.manifest.root["recipe"], model.manifest.task) == (recipe, TEXT_TO_TEXT)
    for name, found in outputs(model, config["vocab_size"]).items():
        assert error(found, RECORDED[f"{case}/{name}"]) <= BOUND
    (source, *_) = sources(config["vocab_size"])
    ids = [*model.generate(source[0].tolist(), WRITTEN)]
    start, *rest = expected
    ends = model.manifest.writing.ends if model.manifest.writing else ()
    assert start == config["decoder_start_token_id"]
    assert ids == [token for token in rest if token not in ends]


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loader.load(made(written("bart-0", tmp_path_factory.mktemp("bart") / "model")))


def test_a_source_is_read_before_a_text(bart: Any) -> None:
    ids = np.array([[2, 7]])
    numbers = {"position": np.array([0], np.int32), "source_length": np.array([4], np.int32)}
    with pytest.raises(loader.DoesNotFit, match="the state holds no source"):
        bart.run("prefill", {"input_ids": ids, **numbers})
    state = bart.new_state(batch=1)
    bart.run("encode", {"input_ids": [[0, 5, 2]]}, state)
    with pytest.raises(loader.DoesNotFit, match="source_length is 4, and the source has 3 tokens"):
        bart.run("prefill", {"input_ids": ids, **numbers}, state)


@pytest.mark.parametrize(
    ("ids", "problem"),
    [([0] * 25, "the prompt has 25 tokens"), ([61], "61"), ([], "the prompt is empty")],
)
def test_sources_that_do_not_fit(bart: Any, ids: list[int], problem: str) -> None:
    with pytest.raises(loader.RunError, match=problem):
        bart.generate(ids)


def test_a_seed_repeats_a_text(bart: Any) -> None:
    one, two, other = (
        [*bart.generate([0, 5, 9, 2], 12, temperature=3.0, seed=seed)] for seed in (1, 1, 2)
    )
    assert one == two != other


def test_other_tasks_are_refused(bart: Any) -> None:
    with pytest.raises(loader.DoesNotFit, match="reads a text and writes another"):
        bart.grammar({"type": "object"})
    with pytest.raises(loader.DoesNotFit, match="reads a text and writes another"):
        bart.embed("text")


def test_prompts_one_after_the_other(bart: Any) -> None:
    prompts = [[0, 5, 9, 2], [0, 33, 2], [99]]
    found = [*loader.generate_many(bart, prompts, 5)]
    assert [each.index for each in found] == [0, 1, 2]
    assert [each.stopped for each in found] == ["end", "end", "error"]
    assert list(found[0].ids) == [*bart.generate(prompts[0], 5)]


# --- rules ---------------------------------------------------------------------------------------


def picked(rules: WritingRules, text: list[int], size: int = 8) -> list[int]:
    """The tokens that may stand behind a text."""
    return np.flatnonzero(np.isfinite(rules.scores(np.zeros(size, np.float32), text))).tolist()


def test_rules_of_what_is_written_next() -> None:
    spec = WritingSpec(0, (1,), 3, (1, 2), (6,), (5,), 2, 4)
    rules = WritingRules(spec, 6)
    assert picked(rules, [0]) == [3]
    assert picked(rules, [0, 3]) == [0, 2, 3, 4, 7]  # no end yet, nothing suppressed
    assert picked(rules, [0, 3, 4]) == [0, 2, 3, 4, 5, 7]
    assert picked(rules, [0, 3, 4, 3]) == [0, 1, 2, 3, 5, 7]  # not 3, 4 again
    assert picked(rules, [0, 3, 4, 3, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("text", "count", "found"),
    [([5], 1, [5]), ([5, 6, 5], 2, [6]), ([5, 6, 7, 5, 6], 3, [7]), ([5, 5], 3, []), ([], 2, [])],
)
def test_what_would_repeat(text: list[int], count: int, found: list[int]) -> None:
    assert repeating(text, count) == found


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({}, "'start' is not there"),
        ({"start": -1}, "'start' is -1"),
        ({"start": True}, "'start' is True"),
        ({"start": 0, "ends": 1}, "'ends' is 1"),
        ({"start": 0, "forced_last": ["x"]}, "'forced_last'"),
        ({"start": 0, "least": 0}, "'least' is 0"),
    ],
)
def test_malformed_tokens(item: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        writing_spec(item)


# --- generation_config.json ----------------------------------------------------------------------


def facts(folder: Path, said: dict[str, Any] | None, **changes: Any) -> tuple[Any, list[str]]:
    """The fact of writing that the manifest would have, and the notes."""
    written("bart-0", folder, **changes)
    if said is not None:
        (folder / "generation_config.json").write_text(json.dumps(said))
    build = artifact.prepare(artifact.Request(folder, folder.with_name("out")))
    return build.contents.facts.get("writing"), build.notes


def test_generation_settings(tmp_path: Path) -> None:
    said = {
        "decoder_start_token_id": 2,
        "eos_token_id": [2, 4],
        "forced_bos_token_id": 0,
        "forced_eos_token_id": 2,
        "no_repeat_ngram_size": 3,
        "min_length": 5,
        "max_length": 9,
        "num_beams": 4,
    }
    found, notes = facts(tmp_path / "model", said)
    assert found == {
        "start": 2,
        "ends": (2, 4),
        "forced_first": 0,
        "forced_last": (2,),
        "no_repeat": 3,
        "least": 5,
        "most": 8,
    }
    assert any("num_beams = 4" in note for note in notes)


def test_settings_of_the_configuration(tmp_path: Path) -> None:
    found, _ = facts(tmp_path / "model", None)
    assert found == {"start": 2, "ends": (2,), "forced_last": (2,)}
    found, _ = facts(tmp_path / "other", {"bos_token_id": 7, "eos_token_id": 2})
    assert found == {"start": 7, "ends": (2,)}


@pytest.mark.parametrize("said", [{"decoder_start_token_id": 61}, {"eos_token_id": "x"}])
def test_malformed_settings(said: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(artifact.build.ConfigurationError, match="around what is written"):
        facts(tmp_path / "model", said)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batch": 2}, "--batch is for models that write texts, not bart"),
        ({"devices": 2}, "--devices is for decoders"),
        ({"context": 25}, "--context 25 is not from 1 to 24"),
        ({"kv_dtype": artifact.cache_type.BLOCKS}, "no kernel attends to an encoder's output"),
    ],
)
def test_what_is_refused(options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    source = written("bart-0", tmp_path / "model")
    with pytest.raises(UsageError, match=problem):
        artifact.prepare(artifact.Request(source, tmp_path / "out", **options))


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recipe", ["bart", "t5"])
def test_check_against_transformers(recipe: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the peers extra")
    source = written(RECIPES[recipe], tmp_path / "model")
    folder = made(source, check=True, against="transformers")
    check = loader.load(folder).manifest.root["check"]
    assert (check["status"], check["against"]) == ("passed", "transformers")
    assert check["relative_error"] < BOUND
