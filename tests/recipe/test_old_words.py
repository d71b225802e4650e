"""Words of schema 1: each is refused, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from maxtool.errors import ConfigurationError
from maxtool.recipe import load_recipe
from maxtool.recipe.old_words import REPLACEMENTS

FIELDS = {
    "as": 'x = { type = "float", hf = { keys = ["x"], as = "rsqrt" } }',
    "beside": 'x = { type = "int", optional = true, beside = "sliding_window" }',
    "if": 'x = { type = "int", hf = [{ if = { y = true }, keys = ["x"] }] }',
    "is": 'x = { type = "int", hf = { is = 1 } }',
    "null": 'x = { type = "int", gguf = { keys = ["x"], null = 0 } }',
    "every": 'x = { type = "flags", hf = { keys = [{ except = "x", every = "y" }] } }',
    "except": 'x = { type = "flags", hf = { keys = [{ except = "x" }] } }',
    "from": 'x = { type = "flags", hf = { keys = [{ from = "x" }] } }',
    "period": 'x = { type = "flags", default = { period = 4 } }',
    "by": 'x = { type = "int", default = { by = "n_layers", 4 = 1, else = 2 } }',
    "longrope_attention": 'x = { type = "float", default = { longrope_attention = [1, 2] } }',
    "not": 'x = { type = "flags", default = { not = "y" } }',
    "share": 'x = { type = "int", default = { share = ["head_dim", 0.5] } }',
    "sum": 'x = { type = "int", default = { sum = ["head_dim", 1] } }',
}
SECTIONS = {
    "formula": '[computed.gguf]\n"x" = { formula = "llama3" }',
    **{
        op: f'[weights.hf]\n"norm.weight" = {{ from = "x", op = "{op}" }}'
        for op in ("cast", "dequantize", "rope_halves_to_pairs", "scale")
    },
}
HEAD = 'schema = 1\nname = "mine"\nextends = "llama"\n'


def problems(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "mine.toml").write_text(HEAD + text)
    with pytest.raises(ConfigurationError) as caught:
        load_recipe(str(tmp_path / "mine.toml"))
    return list(caught.value.problems)


def test_every_old_word_is_tested() -> None:
    assert {*FIELDS, *SECTIONS} == {*REPLACEMENTS}


@pytest.mark.parametrize("word", sorted(REPLACEMENTS))
def test_refused_with_a_replacement(tmp_path: Path, word: str) -> None:
    text = f"[config]\n{FIELDS[word]}\n" if word in FIELDS else SECTIONS[word]
    found = problems(tmp_path, text)
    assert any("this maxtool reads schema 2, not 1" in problem for problem in found)
    said = f"{word!r} is a word of schema 1: {REPLACEMENTS[word]}"
    assert any(said in problem for problem in found)


def test_all_at_once(tmp_path: Path) -> None:
    fields = "\n".join(text.replace("x =", f"x{i} =", 1) for i, text in enumerate(FIELDS.values()))
    found = "\n".join(problems(tmp_path, f"[config]\n{fields}\n" + SECTIONS["formula"]))
    for word in (*FIELDS, "formula"):
        assert f"{word!r} is a word of schema 1" in found
