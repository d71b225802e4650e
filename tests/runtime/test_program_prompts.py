"""Files of prompts, continued by the program of an artifact: a JSON object for each line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.runtime import loader
from maxtool.runtime.loader.prompt_lines import NUMBER, OPTIONS, read_line
from maxtool.runtime.loader.prompts import Prompt

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import CONTEXT, PROMPT, STORY, fails

USUAL = Prompt("", 7, loader.Sampling(temperature=0.5), ("end",))


def strict(line: str) -> dict[str, Any]:
    """The object of a line of output, as a reader takes it that knows JSON and no more."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    content = json.loads(line, parse_constant=refuse)
    assert isinstance(content, dict)
    return content


def answers(artifact: Path, file: Path, *arguments: object) -> list[dict[str, Any]]:
    done = tiny_artifact.run(artifact, "--prompts", file, *arguments)
    assert done.returncode in (0, 1), done.stderr
    return [strict(line) for line in done.stdout.splitlines()]


def test_each_line_has_an_answer_in_its_order(
    artifact: Path, tmp_path: Path, ids: dict[str, list[int]]
) -> None:
    file = tmp_path / "prompts.txt"
    asked = {"prompt": PROMPT, "id": [1, "a"], "stop": [" was a"]}
    tokens = json.dumps({"ids": ids["prompt"], "max_tokens": 2})
    file.write_text(f"{PROMPT}\n{json.dumps(asked)}\r\n{tokens}\n")
    first, second, third = answers(artifact, file)
    assert first == {
        "schema": "maxtool.completion/1",
        "index": 0,
        "prompt": PROMPT,
        "text": STORY,
        "ids": ids["story"],
        "tokens": {"prompt": len(ids["prompt"]), "made": len(ids["story"])},
        "stopped": "end",
    }
    assert (second["id"], second["stopped"]) == ([1, "a"], "stop")
    assert second["text"] == STORY.partition(" was a")[0]
    assert (third["prompt_ids"], third["ids"]) == (ids["prompt"], ids["story"][:2])
    assert third["stopped"] == "length"


def test_what_goes_wrong_is_told_line_by_line(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    lines = ["x" * 500 * CONTEXT, "{", '{"ids": [1], "seed": -1}', '{"ids": []}', PROMPT]
    file.write_text("\n".join(lines))
    done = tiny_artifact.run(artifact, "--prompts", file)
    assert done.returncode == 1
    assert "error: 4 of 5 prompts could not be continued" in done.stderr
    found = [strict(line) for line in done.stdout.splitlines()]
    assert [one["index"] for one in found] == [*range(5)]
    assert [one["stopped"] for one in found] == [*["error"] * 4, "end"]
    says = [one["error"]["what"] for one in found[:4]]
    assert "the context" in says[0]
    assert "must be a JSON object" in says[1]
    assert "seed -1 is negative" in says[2]
    assert "the prompt is empty" in says[3]


def test_a_refused_line_has_all_fields_and_its_id(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    wrong = ['{"prompt": "a", "top_k": "b", "id": [1]}', '{"ids": [], "id": 2}', "{}", "{"]
    long = ["x" * 500 * CONTEXT, json.dumps({"ids": [1] * 500 * CONTEXT, "id": "c"})]
    file.write_text("\n".join([*wrong, *long]))
    found = answers(artifact, file)
    assert [one.get("id", "none") for one in found] == [[1], 2, "none", "none", "none", "c"]
    assert [one.get("prompt") for one in found] == [wrong[0], None, *wrong[2:], None, None]
    assert [one.get("prompt_ids") for one in found] == [None, [], None, None, None, None]
    for one in found:
        rest = {"text": "", "ids": [], "tokens": {"prompt": 0, "made": 0}, "stopped": "error"}
        assert one.items() >= rest.items()


def test_a_byte_order_mark_is_not_part_of_the_first_line(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(f'{{"prompt": "{PROMPT}"}}\n{PROMPT}', encoding="utf-8-sig")
    first, second = answers(artifact, file)
    assert first["prompt"] == second["prompt"] == PROMPT


def test_lines_before_bytes_that_are_not_text_are_answered(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes(PROMPT.encode() + b"\n\xff\n" + PROMPT.encode())
    done = tiny_artifact.run(artifact, "--prompts", file, "-q")
    assert (done.returncode, strict(done.stdout)["text"]) == (3, STORY)
    assert done.stderr.startswith("error: no UTF-8 text in line 2\n")


def test_output_is_a_json_object_on_each_line_and_nothing_else(
    artifact: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text(PROMPT)
    done = tiny_artifact.run(artifact, "--prompts", file, "--json")
    assert done.returncode == 2
    assert "without --json" in strict(done.stdout)["error"]["what"]


def test_a_text_that_fails_underway_ends_alone(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    infinite = json.dumps({"prompt": PROMPT, "repetition_penalty": 1e-320})
    file.write_text(f"{PROMPT}\n{infinite}\n{PROMPT}\n")
    done = tiny_artifact.run(artifact, "--prompts", file, "-q")
    found = [strict(line) for line in done.stdout.splitlines()]
    assert [one["stopped"] for one in found] == ["end", "error", "end"]
    assert "not finite" in found[1]["error"]["what"]
    assert done.stderr == "error: 1 of 3 prompts could not be continued\n"


def test_a_tokenizer_that_fails_at_the_end_fails_that_text(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_reply: object) -> str:
        raise loader.BadInput("the tokenizer failed")

    monkeypatch.setattr("maxtool.runtime.loader.reply.Reply.finish", refuse)
    results = list(loader.generate_many(loader.load(artifact), [PROMPT, PROMPT], 2))
    assert [(one.stopped, str(one.error)) for one in results] == [
        ("error", "the tokenizer failed")
    ] * 2
    assert [len(one.ids) for one in results] == [2, 2]


def test_prompts_from_stdin(artifact: Path) -> None:
    command = [sys.executable, artifact / "run.py", "--prompts", "-", "-q", "--max-tokens", "1"]
    done = subprocess.run(command, input=PROMPT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["text"]


def test_files_and_options_that_do_not_fit(artifact: Path, tmp_path: Path) -> None:
    fails(artifact, 3, "--prompts", tmp_path / "none", says="cannot be read")
    file = tmp_path / "prompts.txt"
    file.write_bytes(b"\xff\n")
    fails(artifact, 3, "--prompts", file, says="no UTF-8 text in line 1")
    fails(artifact, 2, "--prompts", file, "--prompt", "x", says="give one of")
    fails(artifact, 2, "--prompts", file, "--temperature", "-1", says="temperature")
    fails(artifact, 2, "--chat", "--prompts", file, "--prompt", "x", says="--chat goes with")
    file.write_bytes(b"")
    assert answers(artifact, file) == []


def test_a_line_says_what_is_otherwise() -> None:
    assert read_line("a {", USUAL) == (Prompt("a {", 7, USUAL.sampling, ("end",)), {})
    options = {"prompt": "b", "seed": 4, "top_k": 2, "max_tokens": 1, "stop": [], "id": None}
    sampling = loader.Sampling(temperature=0.5, seed=4, top_k=2)
    assert read_line(json.dumps(options), USUAL) == (Prompt("b", 1, sampling, ()), {"id": None})


WRONG = ['{"prompt": 1}', '{"prompt": "a", "ids": [1]}', '{"ids": [true]}', '{"ids": [1.0]}', "{}"]
WRONG += ['{"prompt": "a", "temperature": "1"}', '{"prompt": "a", "max_tokens": true}', '{"a": 1}']
WRONG += [f'{{"prompt": "a", "{name}": 1{400 * "0"}}}' for name in ("temperature", "min_p")]
WRONG += [f'{{"prompt": "a", "id": {number}}}' for number in ("NaN", "-Infinity", "1e999")]
WRONG += [json.dumps({"prompt": "a", "stop": stop}) for stop in (["b"] * 65, ["b" * 1025])]
WRONG += ['{"prompt": "a", "stop": "b"}', '{"prompt": "a", "stop": [1]}', "{" * 100_000, '{"a"}']


@pytest.mark.parametrize("line", WRONG, ids=range(len(WRONG)))
def test_an_object_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(loader.BadInput):
        read_line(line, USUAL)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


TOP = float(np.finfo(np.float32).max)
LOGITS = np.array([0.0, -TOP, TOP, -1.0, 1.0], np.float32)
NUMBERS = st.integers(0, 10**400) | st.floats(0, allow_nan=False, allow_infinity=False)
SETTINGS = {name: NUMBERS if what == NUMBER else st.integers(0) for name, what in OPTIONS.items()}
del SETTINGS["stop"]


@given(st.dictionaries(st.sampled_from(["prompt", "ids", "id", *OPTIONS]), VALUES))
def test_any_object_is_a_prompt_or_refused(content: dict[str, object]) -> None:
    try:
        prompt, label = read_line(json.dumps(content), USUAL)
    except loader.BadInput:
        return
    assert isinstance(prompt.text, str | list)
    assert label.keys() <= {"id"}
    assert type(prompt.max_tokens) is int


@given(st.fixed_dictionaries({"prompt": st.just("a")}, optional=SETTINGS))
def test_any_settings_draw_a_token_or_are_refused(content: dict[str, object]) -> None:
    try:
        prompt, _ = read_line(json.dumps(content), USUAL)
        token = loader.TokenSampler(prompt.sampling)(LOGITS, [2, 3])
    except loader.RunError:
        return
    assert 0 <= token < LOGITS.size


def test_a_line_keeps_what_it_cannot_say() -> None:
    """A reply to an object with ``--chat`` is a text of its own, as that to a plain line."""
    usual = Prompt("", 7, alone=True)
    prompt, _ = read_line('{"prompt": "x", "seed": 3}', usual)
    assert (prompt.text, prompt.max_tokens, prompt.alone) == ("x", 7, True)
