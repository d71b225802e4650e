"""``run.py --json-schema``, where there is no maxtool."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact
from tiny_artifact import PROMPT, fails

# The context has room for no more.
SCHEMA = {"type": "object", "properties": {"a": {"enum": [12, "é"]}}, "required": ["a"]}
TEXTS = ({"a": 12}, {"a": "é"})


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({**SCHEMA, "additionalProperties": False}))
    return file


@pytest.mark.long
def test_a_text_follows_a_schema(artifact: Path, schema: Path) -> None:
    asked = ("--prompt", PROMPT, "--json-schema", schema)
    for more in ((), ("--temperature", 1.2, "--seed", 3, "--top-k", 5)):
        done = tiny_artifact.run(artifact, *asked, *more)
        assert done.returncode == 0, done.stderr
        text = done.stdout.removeprefix(PROMPT)
        assert json.loads(text) in TEXTS
        told = tiny_artifact.run(artifact, *asked, *more, "--json")
        content = json.loads(told.stdout)
        assert (content["text"] + "\n", content["stopped"]) == (PROMPT + text, "end")
        *tokens, last = tiny_artifact.run(
            artifact, *asked, *more, "--json-stream"
        ).stdout.splitlines()
        pieces = [json.loads(line) for line in (*tokens, last)]
        assert "".join(piece["text"] for piece in pieces) + "\n" == text
        assert [piece["id"] for piece in pieces[:-1]] == content["ids"]
        assert pieces[-1]["stopped"] == "end"


def test_a_text_cut_by_its_length(artifact: Path, schema: Path) -> None:
    asked = ("--prompt", PROMPT, "--json-schema", schema, "--max-tokens", 3, "--json")
    content = json.loads(tiny_artifact.run(artifact, *asked).stdout)
    assert (len(content["ids"]), content["stopped"]) == (3, "length")
    assert content["text"].startswith(PROMPT + "{")


def test_many_texts_follow_it(artifact: Path, schema: Path) -> None:
    lines = f'{PROMPT}\n{{"prompt": "Lily", "temperature": 2.0, "seed": 4}}\n'
    asked = ("--prompts", "-", "--json-schema", schema, "-q")
    done = tiny_artifact.run(artifact, *asked, stdin=lines)
    assert [json.loads(json.loads(line)["text"]) in TEXTS for line in done.stdout.splitlines()] == [
        True,
        True,
    ]


@pytest.mark.long
def test_schemas_that_cannot_be_followed(artifact: Path, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    asked = ("--prompt", PROMPT, "--json-schema", file)
    fails(artifact, 3, *asked, says="cannot be read")
    for text, says in (
        ("{", "the JSON schema is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("true", "must be an object"),
        ('{"not": {}}', 'Unimplemented keys: ["not"]'),
        ('{"const": NaN}', "NaN is not JSON"),
    ):
        file.write_text(text)
        fails(artifact, 3, *asked, says=says)
        fails(artifact, 3, *asked, says=f"at: file {file}")
    file.write_bytes(b" " * ((1 << 20) + 1))
    fails(artifact, 3, *asked, says="at most 1048576 bytes")
    fails(artifact, 2, "--info", "--json-schema", file, says="--json-schema goes with --prompt")


def test_without_the_package(artifact: Path, schema: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "llguidance.py").write_text("raise ImportError")
    asked = ("--prompt", PROMPT, "--json-schema", schema)
    env = {"PYTHONPATH": str(tmp_path / "hidden")}
    done = tiny_artifact.run(artifact, *asked, env=env)
    assert done.returncode == 6
    assert "JSON schemas need the package llguidance" in done.stderr
    assert "help: pip install 'llguidance" in done.stderr
