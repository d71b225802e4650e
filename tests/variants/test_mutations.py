"""Recipes damaged field by field and rule by rule: a recording shows it each time.

A damaged recipe is refused when it is loaded, refuses a configuration that it should read, or gives
outputs or files that are not those recorded. What changes nothing is in ``EQUIVALENT``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from maxtool.errors import MaxtoolError
from maxtool.recipe import load_recipe
from maxtool.recipe.recipe_files import recipe_file
from tests.effort import sampled
from tests.variants.classifier_faults import ClassifierCase
from tests.variants.convnet_faults import ConvnetCase
from tests.variants.damage import ancestors, damaged, damages, heirs, tables
from tests.variants.dual_encoder_faults import DualEncoderCase
from tests.variants.equivalent import EQUIVALENT
from tests.variants.image_faults import ImageCase
from tests.variants.image_text_faults import ImageTextCase
from tests.variants.judge import Judge
from tests.variants.mutations import Mutation, Table
from tests.variants.recorded_faults import RecordedCase, RecordedJudge
from tests.variants.rows import FAMILIES, RANDOM, rows
from tests.variants.seq2seq_faults import Seq2SeqCase
from tests.variants.speech_faults import SpeechCase

FOLDER = (recipe_file("llama") or Path()).parent
RECIPES = sorted(file.stem for file in FOLDER.glob("*.toml"))
SAMPLE, SEED = 3, 13
# Cases of models that are not models of texts, by their architecture.
RECORDED = {
    "convnext": ConvnetCase,
    "dual_encoder": DualEncoderCase,
    "image_encoder": ImageCase,
    "image_text": ImageTextCase,
    "resnet": ConvnetCase,
    "seq2seq": Seq2SeqCase,
    "speech": SpeechCase,
}
# Heads of models of texts, which have recordings besides those of the model.
HEADS = {"encoder": ClassifierCase}


@pytest.mark.long
def test_what_is_whole_shows_nothing(tmp_path: Path) -> None:
    judge = Judge([], tmp_path)
    for looks in (judge.unpublished, judge.unwritten, judge.unmatched):
        assert not list(looks(RECIPES))


@pytest.mark.explored
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*dict.fromkeys((*RECORDED.values(), *HEADS.values()))])
def test_recordings_of_what_is_whole_show_nothing(kind: type[RecordedCase], tmp_path: Path) -> None:
    assert not list(RecordedJudge(kind, tmp_path).problems())


@pytest.mark.long
def test_every_known_damage_is_done() -> None:
    done = {f"{recipe} {mutation}" for recipe in RECIPES for mutation, _ in damages(recipe)}
    for pattern in (pattern for patterns in EQUIVALENT.values() for pattern in patterns):
        assert any(fnmatchcase(each, pattern) for each in done), pattern


def test_codecs_and_operations_are_exchanged() -> None:
    done = {f"{recipe} {mutation}" for recipe in RECIPES for mutation, _ in damages(recipe)}
    scale = "set config/attention_scale/gguf/codec to"
    assert f"gemma2 {scale} 'gemma3_attention_scale'" in done
    assert f"gemma3 {scale} 'gemma2_attention_scale'" in done
    assert "smollm3 set config/rope_layers/gguf/codec to 'flags_of_windows'" in done
    assert any("op to 'unstack'" in each for each in done)


@cache
def model_type(family: str) -> str:
    """Return the model type of a family's configurations, or of the part that is read of them."""
    config = next(rows(family)).config
    whole, inside = config["model_type"], config.get("text_config", {}).get("model_type")
    return str(whole if inside is None or whole in known_types() else inside)


@cache
def known_types() -> frozenset[object]:
    """Return the model types that recipes know."""
    matches = [load_recipe(recipe).match.get("hf") for recipe in RECIPES if recipe[0] != "_"]
    return frozenset(
        kind for match in matches if match for kind in match.values.get("model_type", ())
    )


def _recorded(
    recipe: str, kinds: Mapping[str, type[RecordedCase]] = RECORDED
) -> type[RecordedCase] | None:
    """Return the kind of a recipe's recordings; None where it has none of these."""
    named = (kinds.get(str(tables(each).get("architecture"))) for each in ancestors(recipe))
    return next(filter(None, named), None)


def families(recipe: str) -> list[str]:
    """The recordings that a recipe decides, those of many keys at once first."""
    known = [load_recipe(heir).match["hf"].values["model_type"] for heir in heirs(recipe)]
    ours = [each for kinds in known for each in FAMILIES if model_type(each) in kinds]
    return sorted(ours, key=lambda family: family not in RANDOM)


def relatives(recipe: str) -> list[str]:
    """The recordings of the model that a recipe extends, which it must not claim."""
    base = ancestors(recipe)[1:2]
    return families(base[0]) if base and not base[0].startswith("_") else []


def shown(recipe: str, judge: Judge, damage: tuple[Mutation, Table]) -> str | None:
    """Return the evidence of the damage: first where it is likely, then anywhere."""
    mutation, _ = damage
    words = mutation.words(tables(recipe)) if len(mutation.path) > 1 else None
    looks = (
        (family, each) for each in ([words, None] if words else [None]) for family in judge.families
    )
    result = filter(None, (_shown(recipe, judge, damage, *look) for look in looks))
    return _unpublished(recipe, judge, damage) or next(result, None)


def _unpublished(recipe: str, judge: Judge, damage: tuple[Mutation, Table]) -> str | None:
    """Damage that fields and keys alone show, without weights."""
    mutation, changed = damage
    names, part = heirs(recipe), mutation.path[0]
    cases = [judge.cases(each)[0] for each in judge.families] if part == "entries" else []
    others = [each for each in relatives(recipe) if judge.cases(each)] if part == "match" else []
    with damaged(recipe, changed):
        unwritten = judge.unwritten(names) if part in ("config", "constants", "order") else ()
        unmatched = judge.unmatched(names) if part == "match" else ()
        unoffered = judge.unoffered([each for each in cases if each.recipe in names])
        mistaken = itertools.chain.from_iterable(map(judge.unrecognised, others))
        published = judge.unpublished(names)
        looks = (published, unwritten, unmatched, unoffered, mistaken)
        try:
            return next(itertools.chain(*looks), None)
        except MaxtoolError as refusal:
            return f"refused: {refusal}"


def _shown(
    recipe: str,
    judge: Judge,
    damage: tuple[Mutation, Table],
    family: str,
    words: frozenset[str] | None,
) -> str | None:
    mutation, changed = damage
    name = judge.cases(family)[0].recipe  # read by the recipe as it stands
    usual = judge.usually(family, name)
    with damaged(recipe, changed):
        faults = judge.evidence(family, heirs(recipe), words)
        is_match = mutation.path[0] in ("match", "constants")
        matched = judge.unrecognised(family) if is_match else ()
        if wrong := next(itertools.chain(faults, matched), None):
            return wrong
        is_other = mutation.path[0] == "config" and judge.incomplete(family, name) != usual
        return "reads what is left out otherwise" if is_other else None


def known(recipe: str, mutation: Mutation) -> bool:
    """Return whether it is known to change nothing."""
    listed = (pattern for patterns in EQUIVALENT.values() for pattern in patterns)
    return any(fnmatchcase(f"{recipe} {mutation}", pattern) for pattern in listed)


def _shown_whole(recipe: str, judge: RecordedJudge, damage: tuple[Mutation, Table]) -> str | None:
    """Return the evidence of damage to a recipe, in any recording of its kind."""
    with damaged(recipe, damage[1]):
        return next(judge.evidence(heirs(recipe)), None)


def survivors(recipe: str, folder: Path, chosen: list[tuple[Mutation, Table]]) -> Iterator[str]:
    """The damage that nothing shows, and that is not known to change nothing."""
    look: Callable[[tuple[Mutation, Table]], str | None]
    if (kind := _recorded(recipe)) is not None:
        look = partial(_shown_whole, recipe, RecordedJudge(kind, folder))
    else:
        look = partial(shown, recipe, Judge(families(recipe), folder))
    heads = _recorded(recipe, HEADS)
    headed = None if heads is None else RecordedJudge(heads, folder / "heads")
    for damage in chosen:
        if known(recipe, damage[0]) or look(damage) is not None:
            continue
        if headed is None or _shown_whole(recipe, headed, damage) is None:
            yield f"{recipe} {damage[0]}"


def _damaged_rule(recipe: str, mutation: str) -> Table:
    """A recipe's tables, with damage to a rule that all its folders need."""
    return next(changed for each, changed in damages(recipe) if str(each).startswith(mutation))


NORM = "set weights/hf/layers.{layer}.attn_post_norm.weight"


@pytest.mark.long
def test_a_recording_that_is_wrong_as_it_stands_shows_nothing(tmp_path: Path) -> None:
    judge, changed = Judge(["olmo2"], tmp_path), _damaged_rule("olmo2", NORM)
    judge.cases("olmo2")
    with damaged("olmo2", changed):
        assert any(judge.evidence("olmo2", ["olmo2"], None))
    judge = Judge(["olmo2"], tmp_path / "wrong")
    for case in judge.cases("olmo2"):
        assert case.row.expected is not None
        np.multiply(case.row.expected, 1.001, out=case.row.expected)
    with damaged("olmo2", changed):
        assert any(judge.faults("olmo2", ["olmo2"], None))
        assert not list(judge.evidence("olmo2", ["olmo2"], None))


@pytest.mark.long
def test_a_wrong_recording_of_two_texts_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = _damaged_rule("bart", "drop weights/hf/shared.weight")
    for folder, wrong in ((tmp_path, None), (tmp_path / "wrong", "other outputs")):
        judge = RecordedJudge(Seq2SeqCase, folder)
        judge.cases = [case for case in judge.cases if case.name == "bart-0"]
        if wrong:
            monkeypatch.setattr(judge.cases[0], "outputs_wrong", lambda: "other outputs")
        with damaged("bart", changed):
            assert any(judge.faults(["bart"]))
            assert any(judge.evidence(["bart"])) == (wrong is None)


@pytest.mark.long
def test_recordings_of_what_is_read_in_part() -> None:
    """Judge a recipe of a language model by recordings of the whole that no recipe reads."""
    assert families("qwen3_vl") == ["qwen3_vl"]
    assert families("qwen2_vl_vision") == families("qwen2_vl") == ["qwen2_5_vl", "qwen2_vl"]


def test_some_damage(tmp_path: Path) -> None:
    chosen = random.Random(SEED).sample(damages("olmo2"), SAMPLE)
    alive = list(survivors("olmo2", tmp_path, chosen))
    assert not alive, "\n".join(alive)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sampled(RECIPES, share=4))
def test_damage(recipe: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A sample of it, or with ``--everything`` all."""
    chosen = damages(recipe)
    if not request.config.getoption("--everything"):
        chosen = random.Random(SEED).sample(chosen, min(SAMPLE, len(chosen)))
    alive = list(survivors(recipe, tmp_path, chosen))
    assert not alive, "\n".join(alive)
