"""Codecs of activations: the words that each recipe reads, and the one that it writes."""

from __future__ import annotations

import pytest

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.recipe import load_recipe, recipe_names
from maxtool.recipe.activation_codecs import ACTIVATION_CODECS
from maxtool.recipe.codecs import CODECS

# Families whose published configurations say gelu_new.
OLDER = ("codegen", "gpt2", "gpt_neo", "gptj", "opt", "phi")
GATED = ("dinov2", "dinov2_with_registers")
OTHERS = {
    **{name: {"older_activation"} for name in OLDER},
    **{name: {"activation", "silu_whatever_is_said"} for name in GATED},
    "apertus": {"apertus_activation"},
    "gemma": {"gemma_activation"},
    "nomic_bert": {"nomic_activation"},
}


def codecs(name: str) -> set[str]:
    """Return the codecs of activations in a recipe's fields."""
    fields = load_recipe(name).fields.values()
    used = {way.codec for field in fields for way in field.spellings.get("hf", ())}
    return used & ACTIVATION_CODECS.keys()


@pytest.mark.parametrize("name", recipe_names())
def test_codec_of_a_recipe(name: str) -> None:
    assert codecs(name) <= OTHERS.get(name, {"activation"})


def test_families_with_words_of_their_own() -> None:
    assert {name for name in recipe_names() if codecs(name) - {"activation"}} == {*OTHERS}


@pytest.mark.parametrize(
    ("codec", "word", "activation"),
    [
        ("activation", "gelu_new", "gelu_tanh"),
        ("activation", "gelu", "gelu"),
        ("older_activation", "gelu_pytorch_tanh", "gelu_tanh"),
        ("gemma_activation", "gelu", "gelu_tanh"),
        ("gemma_activation", "gelu_python", "gelu"),
        ("apertus_activation", "xielu", "xielu"),
        ("nomic_activation", "swiglu", "silu"),
        ("silu_whatever_is_said", "gelu", "silu"),
    ],
)
def test_words(codec: str, word: str, activation: str) -> None:
    assert CODECS[codec].read([word], {}) == activation


@pytest.mark.parametrize(
    ("codec", "word"),
    [
        ("activation", "gelu_pytorch_tanh"),
        ("older_activation", "gelu_new"),
        ("gemma_activation", "gelu_pytorch_tanh"),
        ("apertus_activation", "gelu_pytorch_tanh"),
        ("nomic_activation", "gelu_pytorch_tanh"),
    ],
)
def test_the_word_that_is_written(codec: str, word: str) -> None:
    assert CODECS[codec].write("gelu_tanh", {}) == (word,)
    written = {name: CODECS[codec].write(name, {})[0] for name in ACTIVATIONS}
    assert {name: CODECS[codec].read([one], {}) for name, one in written.items()} == {
        name: name for name in ACTIVATIONS
    }
