"""Speech is written down as transformers writes it, token for token."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from maxtool import artifact
from maxtool.cli.app import app
from maxtool.errors import ConfigurationError
from maxtool.runtime import loader
from maxtool.runtime.loader.speech_spec import speech_spec
from maxtool.runtime.loader.transcription import Segment, Transcriber, cut
from tests.data import speech_files
from tests.data.speech_files import ENGLISH, GENERATION, sound, wav

RECORDED = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "speech.json").read_text(encoding="utf-8")
)
CASES: dict[str, Any] = RECORDED["cases"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """An artifact of the model that knows several languages, or one."""

    @cache
    def make(is_english: bool) -> Path:
        folder = tmp_path_factory.mktemp("speech")
        generation = ENGLISH if is_english else GENERATION
        source = speech_files.write(folder / "model", RECORDED["shapes"], generation)
        artifact.make(artifact.prepare(artifact.Request(source, folder / "compiled")))
        return folder / "compiled"

    return make


def transcribed(transcriber: Transcriber, case: dict[str, Any]) -> tuple[Any, list[Segment]]:
    """The language of a recorded sound, and its parts."""
    samples = sound(case["seconds"], case["seed"]).astype(np.float32) / 32768
    heard = transcriber.sound(samples, speech_files.RATE)
    language = case.get("language") or transcriber.language_of(heard)
    task, times = case.get("task", "transcribe"), case.get("times", False)
    return language, list(transcriber.transcribe(heard, language, task, times=times))


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if case.get("english") else name
        for name, case in CASES.items()
    ],
)
def test_tokens_are_those_of_transformers(name: str, compiled: Callable[[bool], Path]) -> None:
    case = CASES[name]
    model = loader.load(compiled(bool(case.get("english"))))
    language, parts = transcribed(model.transcriber(), case)
    if "ids" in case:
        assert [token for part in parts for token in part.ids] == case["ids"]
        assert parts[-1].end <= case["seconds"] + 0.01
    else:
        found = [[round(part.start, 3), round(part.end, 3), list(part.ids)] for part in parts]
        assert found == case["parts"]
    assert language == case.get("language", language)
    for part in parts:
        text = [token for token in part.ids if token < speech_files.FIRST_TIME]
        assert part.text == model.decode(text)


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, ["run", *map(str, arguments)])
    assert result.exit_code == code, result.stderr
    return result.stdout, result.stderr


def test_the_command(compiled: Callable[[bool], Path], tmp_path: Path) -> None:
    folder, case = compiled(False), CASES["long"]
    file = tmp_path / "long.wav"
    file.write_bytes(wav(sound(case["seconds"], case["seed"])))
    told = json.loads(run(folder, "--audio", file, "--language", "en", "--json")[0])
    (one,) = told["audio"]
    assert (told["schema"], told["count"]) == ("maxtool.transcription/1", 1)
    assert (one["audio"], one["language"], one["seconds"]) == (str(file), "en", case["seconds"])
    assert [[s["start"], s["end"], s["ids"]] for s in one["segments"]] == case["parts"]
    text, noted = run(folder, "--audio", file, "--language", "en")
    assert text.strip() == one["text"]
    assert "3.4 s of sound took" in noted
    lines = run(folder, "--audio", file, "--language", "en", "--timestamps")[0].splitlines()
    assert len(lines) == len(one["segments"])
    assert all(re.match(r"\[00:0\d\.\d{3} --> 00:0\d\.\d{3}\]  ", line) for line in lines)
    several, noted = run(folder, "--audio", file, "--audio", file)
    assert several.count(f"{file}\n") == 2
    assert "language: " in noted


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--language", "xx"], 2, "the model knows no language 'xx'"),
        (["--task", "sing"], 2, "the model knows no task 'sing'"),
        (["--temperature", "1"], 2, "--audio writes the likeliest tokens"),
        (["--prompt", "a"], 2, "give one of --prompt"),
        ([], 3, "the sound cannot be read"),
    ],
)
def test_what_is_refused(
    options: list[str], code: int, problem: str, compiled: Callable[[bool], Path], tmp_path: Path
) -> None:
    _, told = run(compiled(False), "--audio", tmp_path / "none.wav", *options, code=code)
    assert problem in told


@pytest.mark.slow
def test_models_of_one_language_and_of_none(
    compiled: Callable[[bool], Path], tmp_path: Path
) -> None:
    file = tmp_path / "x.wav"
    _, told = run(compiled(True), "--audio", file, "--language", "en", code=2)
    assert "the model writes one language" in told
    _, told = run(compiled(True), "--ids", "1", code=4)
    assert "this model takes sounds" in told
    _, told = run(compiled(True), "--language", "en", "--prompt", "x", code=2)
    assert "go with --audio" in told
    file.write_bytes(wav(np.zeros(0, "<i2")))
    _, told = run(compiled(True), "--audio", file, code=3)
    assert "the sound has no samples" in told


@pytest.mark.parametrize("missing", ["preprocessor_config", "generation_config", "tokenizer"])
def test_folders_without_a_file(missing: str, tmp_path: Path) -> None:
    source = speech_files.write(tmp_path / "model", RECORDED["shapes"])
    (source / f"{missing}.json").unlink()
    build = artifact.prepare(artifact.Request(source, tmp_path / "out"))
    assert any("the artifact takes" in note for note in build.notes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"eos_token_id": speech_files.SIZE}, f"token {speech_files.SIZE}, of"),
        ({"eos_token_id": "end"}, "'end' is 'end'"),
        ({"suppress_tokens": [-1]}, "'suppressed' is [-1]"),
        ({"lang_to_id": {"<|en|>": None}}, "'languages' is"),
        ({"lang_to_id": ["<|en|>"]}, "malformed"),
        ({"forced_decoder_ids": [[1]]}, "malformed"),
        ({"suppress_tokens": 7}, "malformed"),
    ],
)
def test_tokens_that_are_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    generation = {**GENERATION, **changes}
    source = speech_files.write(tmp_path / "model", RECORDED["shapes"], generation)
    with pytest.raises(ConfigurationError) as refusal:
        artifact.prepare(artifact.Request(source, tmp_path / "out"))
    assert problem in str(refusal.value)


def test_tokens_that_are_forced() -> None:
    """Older files say the language so, and know no other."""
    said = {"start": 1, "end": 0, "no_timestamps": 5, "forced": [2, 3, 5]}
    spec = speech_spec(said)
    assert spec.prompt(None, "transcribe", times=False) == [1, 2, 3, 5]
    assert spec.prompt(None, "transcribe", times=True) == [1, 2, 3]
    chosen = speech_spec({**said, "languages": {"de": 4}, "tasks": {"transcribe": 3}})
    assert chosen.prompt("de", "transcribe", times=True) == [1, 4, 3]


def test_what_is_not_done_is_told(tmp_path: Path) -> None:
    generation = {**GENERATION, "num_beams": 5, "logprob_threshold": -1.0}
    source = speech_files.write(tmp_path / "model", RECORDED["shapes"], generation)
    notes = artifact.prepare(artifact.Request(source, tmp_path / "out")).notes
    assert sum("is not done" in note for note in notes) == 2


@pytest.mark.parametrize(
    ("ids", "parts", "moved"),
    [
        ([5], [(0, 25, [5])], 50),  # no time at all
        ([10, 5, 13], [(0, 3, [10, 5, 13])], 50),
        ([10, 5, 13, 13], [(0, 3, [10, 5, 13, 13])], 6),
        ([10, 5, 13, 13, 6], [(0, 3, [10, 5, 13, 13])], 6),  # cut within a part
        ([10, 5, 13, 14, 6, 19], [(0, 3, [10, 5, 13]), (4, 9, [14, 6, 19])], 50),
        ([10, 5, 13, 14, 6, 19, 19], [(0, 3, [10, 5, 13]), (4, 9, [14, 6, 19, 19])], 18),
        ([], [(0, 25, [])], 50),
    ],
)
def test_parts_of_a_window(ids: list[int], parts: list[Any], moved: int) -> None:
    assert cut(ids, 10, 50) == (parts, moved)


def _without(name: str) -> Callable[[Any], None]:
    return lambda root: root["entries"].pop(name)


DAMAGED: dict[str, tuple[Callable[[Any], object], str]] = {
    "other bands": (lambda root: root["audio"].update(bands=13), "'audio' makes 13 bands"),
    "no rate": (lambda root: root["audio"].update(rate=None), "'rate' is None"),
    "a wild token": (lambda root: root["speech"].update(end=10**6), "'speech' names token 1000000"),
    "no token": (lambda root: root["speech"].update(start=None), "not both there"),
    "no encoder": (_without("encode"), "there is no entry 'encode'"),
    "no steps": (_without("decode"), "there is no entry 'decode'"),
    "no state": (lambda root: root["entries"]["encode"].update(state=False), "has no state"),
    "no position": (lambda root: root["entries"]["decode"]["inputs"].pop(), "has state, but not"),
    "other features": (
        lambda root: root["entries"]["encode"]["inputs"][0].update(dtype="float16"),
        "'encode' is not from input_features",
    ),
    "another task": (lambda root: root.update(task="generate"), "has state, but not input_ids"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_manifests_that_contradict_themselves(
    damage: str, compiled: Callable[[bool], Path], tmp_path: Path
) -> None:
    change, problem = DAMAGED[damage]
    folder = shutil.copytree(compiled(False), tmp_path / "copy")
    root = json.loads((folder / "manifest.json").read_text())
    change(root)
    (folder / "manifest.json").write_text(json.dumps(root))
    with pytest.raises(loader.BadInput) as refusal:
        loader.load(folder, check=False)
    assert problem in str(refusal.value)
