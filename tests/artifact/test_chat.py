"""Conversations with compiled models: from both dialects, and with caches of every kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from maxtool import conversion
from maxtool.artifact import tokenizer_files
from maxtool.recipe import find_recipe, plan
from maxtool.recipe.fitted_tokenizer import model_tokenizer
from maxtool.runtime import loader
from maxtool.runtime.loader.session import Session
from maxtool.weights import open_checkpoint
from tests.artifact.measure import Compile
from tests.effort import thinned

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
MULTILINGUAL = json.loads(
    (Path(__file__).parents[1] / "data" / "multilingual.json").read_text(encoding="utf-8")
)


@pytest.fixture
def source(sample: Path, tmp_path: Path) -> Path:
    """The sample model, with a chat template."""
    folder = tmp_path / "source"
    shutil.copytree(sample, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def converted(source: Path, output: Path) -> Path:
    conversion.convert(conversion.prepare(conversion.Request(source, output)))
    return output


def test_both_dialects_keep_the_tokenizer_and_the_template(source: Path, tmp_path: Path) -> None:
    gguf = converted(source, tmp_path / "there.gguf")
    back = converted(gguf, tmp_path / "back")
    result = []
    for i, path in enumerate((source, gguf, back)):
        folder = tmp_path / str(i)
        folder.mkdir()
        checkpoint = open_checkpoint(path)
        tokenizer, notes = model_tokenizer(plan(find_recipe(checkpoint), checkpoint))
        assert tokenizer is not None and not notes
        manifest = tokenizer_files.write(tokenizer, folder)
        library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = [library.encode(text, add_special_tokens=False).ids for text in MULTILINGUAL.values()]
        assert (folder / "chat_template.jinja").read_text() == TEMPLATE
        result.append((manifest, ids))
    assert result[0] == result[1] == result[2]
    special = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    assert result[0][0]["special_tokens"] == special


# Without a window, with one, with windows and two bases, with a scaling.
KEPT = ("tiny-llama", "tiny-mistral", "tiny-gemma3", "tiny-yarn")


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(KEPT, "tiny-llama", "tiny-gemma3"))
def test_what_is_kept_changes_nothing(compiled: Compile, data: Path, name: str) -> None:
    """A text read in two parts is continued as one read at once, with windows and scaling too."""
    model = loader.load(compiled(data / name))
    choose = loader.TokenSampler(loader.Sampling())
    ids = np.random.default_rng(2).integers(3, 60, 20).tolist()
    kept = Session(model)
    first = list(kept.generate(ids[:11], 3, choose))
    assert len(kept.ids) >= 11
    assert list(kept.generate(ids, 12, choose)) == list(Session(model).generate(ids, 12, choose))
    # A cache that is as long as the window has lost what the 11th token looks back at.
    assert kept.reused == (0 if model.manifest.kept_positions else 11)
    assert list(kept.generate(ids[:11], 3, choose)) == first


@pytest.mark.long
def test_keys_that_depend_on_the_length_are_read_again(compiled: Compile, data: Path) -> None:
    """Dynamic scaling: what was read of a longer prompt is of no use to another, nor to itself."""
    model = loader.load(compiled(data / "tiny-dynamic"))
    original = model.manifest.read_whole_beyond
    assert original == 16
    choose = loader.TokenSampler(loader.Sampling())
    ids = np.random.default_rng(2).integers(3, 60, 40).tolist()
    kept, reused = Session(model), []
    first = list(kept.generate(ids[:11], 12, choose))
    grown = [*ids[:11], *first]
    turns = (grown, grown[:14], grown[:15], ids, [*ids, 5], ids[:12], [*ids[:12], 7])
    for prompt in turns:
        fresh = list(Session(model).generate(prompt, 12, choose))
        assert list(kept.generate(prompt, 12, choose)) == fresh, len(prompt)
        reused.append(kept.reused)
    assert len(grown) > original
    assert reused == [0, 0, 14, 0, 0, 0, 12]


@pytest.mark.long
def test_the_artifact_replies(compiled: Compile, source: Path) -> None:
    folder = compiled(source)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["tokenizer"]["chat_template"] == "chat_template.jinja"
    assert "chat_template.jinja" in manifest["files"]
    model = loader.load(folder)
    talk = loader.Conversation(model)
    reply = talk.ask("Once upon a time", max_tokens=8)
    assert "".join(reply) == model.decode(reply.made)
    asked = model.tokenizer.encode("Once upon a time", add_special_tokens=False).ids
    assert list(reply.ids) == [0, *asked, 1]
