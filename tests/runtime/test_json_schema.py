"""Texts that follow JSON schemas, with vocabularies of several kinds and logits drawn at random."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import llguidance
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from maxtool.runtime import loader
from maxtool.runtime.loader import json_schema
from maxtool.runtime.loader.constraint import picker, told, until_complete
from maxtool.runtime.loader.json_schema import Grammars
from maxtool.runtime.loader.memory import Array
from maxtool.runtime.loader.stream import TextStream
from maxtool.runtime.loader.token_bytes import bytes_of_tokens

sys.path.insert(0, str(Path(__file__).parent))
import tiny_artifact

ROOT = Path(__file__).resolve().parents[2]
CHAT = ROOT / "tests" / "data" / "chat"
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["é", "\n", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["byte-level", "fallback", "fireside"])
def model(request: pytest.FixtureRequest) -> Vocabulary:
    files = {"fireside": ROOT / "samples" / "fireside" / "tokenizer.json"}
    if request.param == "fallback":
        tokenizer = tiny_artifact.library()
    else:
        file = files.get(request.param, CHAT / "byte-level.json")
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    return model_of(tokenizer)


class Vocabulary(NamedTuple):
    """The tokenizer of a model, the number of its logits, and the tokens that end a text."""

    tokenizer: Any
    logits: int
    eos: Sequence[int]


def model_of(tokenizer: Any, eos: Sequence[int] = (2,), padding: int = 5) -> Vocabulary:
    """The vocabulary of a model that has more logits than there are tokens."""
    return Vocabulary(tokenizer, tokenizer.get_vocab_size() + padding, eos)


@pytest.fixture(autouse=True)
def checked_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas of these tests that do no harm are tried out without a process for each."""
    if "hostile" not in request.node.name:
        monkeypatch.setattr(json_schema, "answer_of", lambda *_, **__: {})


def written(
    model: Vocabulary,
    schema: dict[str, Any],
    draw: Callable[[], Array],
    most: int = 2000,
    **sampling: Any,
) -> tuple[str, bool]:
    """A text that follows a schema, and whether it has ended."""
    constraint = Grammars(*model).grammar(schema).constraint()
    choose = picker(loader.Sampling(**sampling), constraint)
    stream = TextStream(lambda ids: str(model.tokenizer.decode(list(ids))), [])
    text, made = "", list[int]()
    while len(made) < most:
        token = choose(draw(), made)
        if token in model.eos:
            return text + stream.flush(), True
        made.append(token)
        text += stream.push(token)
        if constraint.is_complete:
            return text + stream.flush(), True
    return text, False


def drawing(model: Vocabulary, seed: int) -> Callable[[], Array]:
    random = np.random.default_rng(seed)
    return lambda: random.normal(0, 3, model.logits).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_text_follows_its_schema(model: Vocabulary, temperature: float) -> None:
    for seed in range(8):
        limits: dict[str, Any] = {"top_k": 40, "top_p": 0.95, "seed": seed}
        draw = drawing(model, seed)
        text, ended = written(model, PERSON, draw, temperature=temperature, **limits)
        assert ended
        jsonschema.validate(json.loads(text), PERSON)


# Small enough that a text comes to its end.
SCALARS = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-1000, 1000),
        st.integers(0, 5000),
    ),
    st.builds(
        lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size},
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.sampled_from(["^[a-f]{2,4}$", "^(yes|no) \\d{1,3}$", "^\\u00e9?x$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.just({"type": "string", "format": "date"}),
    st.lists(st.text(max_size=5) | st.integers(-9, 99) | st.none(), min_size=1, max_size=4).map(
        lambda values: {"enum": values}
    ),
    st.text(max_size=6).map(lambda value: {"const": value}),
)


def _object(properties: dict[str, Any], needed: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties)[:needed],
        "additionalProperties": False,
    }


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(
            lambda items, most: {"type": "array", "items": items, "maxItems": most},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            _object, st.dictionaries(st.text(max_size=5), inner, max_size=3), st.integers(0, 3)
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda several: {"anyOf": several}),
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(schema=SCHEMAS, seed=st.integers(0, 999), temperature=st.sampled_from([0.0, 0.5, 2.0]))
def test_any_schema_is_followed(schema: dict[str, Any], seed: int, temperature: float) -> None:
    """Draw from a vocabulary that writes much of a text byte by byte."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_schema, "answer_of", lambda *_, **__: {})
        model = model_of(tiny_artifact.library())
        draw = drawing(model, seed)
        text, ended = written(model, schema, draw, temperature=temperature, seed=seed)
    assert ended
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_the_likeliest_text_is_that_of_a_plain_loop(model: Vocabulary) -> None:
    """Each token is the likeliest that the library's own vocabulary finds to go on with a text."""
    text, _ = written(model, PERSON, drawing(model, 5))
    own = llguidance.LLTokenizer(model.tokenizer.to_str(), eos_token=2)
    schema = json.dumps({**PERSON, "x-guidance": json_schema.STYLE})
    grammar = f'%llguidance {{"no_forcing": true}}\nstart: %json {schema}\n'
    matcher, draw, made = llguidance.LLMatcher(own, grammar), drawing(model, 5), list[int]()
    while not matcher.is_stopped():
        for token in np.argsort(-draw(), kind="stable").tolist():
            if token == 2 and matcher.is_accepting():
                break
            if token < own.vocab_size and token != 2 and matcher.validate_tokens([token]) == 1:
                break
        matcher.consume_token(token)
        made.append(token)
    assert text == model.tokenizer.decode(made)


def test_bytes_of_tokens_are_the_librarys(model: Vocabulary) -> None:
    own = llguidance.LLTokenizer(model.tokenizer.to_str(), eos_token=2)
    found = bytes_of_tokens(model.tokenizer, model.logits)
    special = {t for t, a in model.tokenizer.get_added_tokens_decoder().items() if a.special}
    for token, data in enumerate(found):
        if token >= own.vocab_size or token in special:
            assert data == b""
        else:
            assert data in (own.decode_bytes([token]), b"")
    assert sum(map(bool, found)) >= own.vocab_size - len(special) - 1


def test_an_end_comes_only_where_the_text_may_end() -> None:
    model = model_of(tiny_artifact.library())
    constraint = Grammars(*model).grammar({"type": "integer"}).constraint()
    seven = bytes_of_tokens(model.tokenizer, model.logits).index(b"7")
    assert 2 not in constraint.allowed()
    constraint.push(seven)
    assert 2 in constraint.allowed()
    assert not constraint.is_complete
    constraint.begin()
    assert 2 not in constraint.allowed()


def test_a_model_without_an_end_of_text() -> None:
    model = model_of(tiny_artifact.library(), eos=(), padding=0)
    text, ended = written(model, PERSON, drawing(model, 1))
    assert ended
    jsonschema.validate(json.loads(text), PERSON)


def test_a_shares_limit_leaves_nothing_that_is_not_allowed() -> None:
    """More tokens may be asked for than are allowed, and all others may be likelier."""
    model = model_of(tiny_artifact.library())

    def unlikely() -> Array:
        logits = np.zeros(model.logits, np.float32)
        logits[ord("{") :] = 1e30
        return logits

    several: list[dict[str, Any]] = [{"top_k": 400}, {"min_p": 0.01}, {"repetition_penalty": 1.7}]
    for sampling in several:
        text, ended = written(model, {"enum": ["a", "b"]}, unlikely, temperature=1.0, **sampling)
        assert ended
        assert json.loads(text) in ("a", "b")


def test_tokens_that_are_left_out_may_be_all_that_are_allowed() -> None:
    model = model_of(tiny_artifact.library())
    with pytest.raises(loader.RunError, match="no token may be written here"):
        written(model, {"enum": ["a"]}, lambda: np.full(model.logits, -np.inf, np.float32))


DEEP = {"$defs": {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}}
        for i in range(9000)} | {"d9000": {}}, "$ref": "#/$defs/d0"}  # fmt: skip
HOSTILE: Sequence[tuple[str, dict[str, Any], str]] = (
    ("keyword", {"uniqueItems": True}, 'Unimplemented keys: \\["uniqueItems"\\]'),
    ("lenient", {"not": {}, "x-guidance": {"lenient": True}}, "Unimplemented keys"),
    ("type", {"type": "text"}, "Invalid type: text"),
    ("format", {"type": "string", "format": "nonsense"}, "Unknown format: nonsense"),
    ("elsewhere", {"$ref": "http://127.0.0.1:9/schema"}, "does not fetch"),
    ("empty", {"type": "integer", "minimum": 5, "maximum": 4}, "minimum \\(5\\)"),
    ("itself", {"$ref": "#"}, "nothing can be written"),
    ("look-ahead", {"type": "string", "pattern": "(?=a)b"}, "look-around"),
    ("stack", DEEP, "stopped, as it takes more than 1 s and 512 MiB, or crashes"),
    ("time", {"type": "integer", "multipleOf": 99_999_989}, "stopped, as it takes more"),
    ("large", {"const": "x" * json_schema.LONGEST}, "at most 1048576 bytes"),
    ("properties", {"properties": {f"p{i}": {} for i in range(2500)}}, "it is too large"),
    ("const", {"const": 2**53 + 1}, "the integer 9007199254740993, which no float64 is"),
    ("minimum", {"items": {"anyOf": [{"minimum": -(10**400)}]}}, "which no float64 is"),
    ("half", {"const": "\ud800"}, "cannot be used"),
)


@pytest.mark.parametrize(
    ("schema", "says"), [pytest.param(schema, says, id=name) for name, schema, says in HOSTILE]
)
def test_hostile_schemas_are_refused(
    schema: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema, "SECONDS", 1 if "stopped" in says else 60)
    model = model_of(tiny_artifact.library())
    with pytest.raises(loader.BadInput, match=says) as caught:
        Grammars(*model).grammar(schema)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_hostile_nesting_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    with pytest.raises(loader.BadInput, match="recursion limit"):
        Grammars(*model_of(tiny_artifact.library())).grammar(deep)
    for _ in range(100_000):
        deep = {"items": deep}
    with pytest.raises(loader.BadInput, match="nested too deeply"):
        Grammars(*model_of(tiny_artifact.library())).grammar(deep)


def test_a_schema_too_wide_for_a_step_ends_the_text() -> None:
    model = model_of(tiny_artifact.library())
    wide = {"type": "object", "properties": {f"p{i}": {} for i in range(2000)}}
    with pytest.raises(loader.DoesNotFit, match=r"any further: it is too large"):
        written(model, wide, drawing(model, 1))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("panic: assertion failed: grammar.symbols.len() < 9\n<backtrace>\n 0: x", "too large"),
        ("panic: no entry found for key\n<backtrace>\n   0: <unknown>", "llguidance fails"),
        ('Parser Error: token "a" is wrong\n<non-verbose/>', '^Parser Error: token "a" is wrong$'),
    ],
)
def test_words_of_llguidance(error: str, words: str) -> None:
    assert re.search(words, told(error))
    assert not re.search("<|panic|symbols", told(error))


def test_another_text_after_one_that_failed() -> None:
    model = model_of(tiny_artifact.library())
    constraint = Grammars(*model).grammar({"type": "integer"}).constraint()
    first = constraint.allowed().tolist()
    with pytest.raises(loader.DoesNotFit, match="any further"):
        constraint.push(2)
    with pytest.raises(loader.DoesNotFit, match="any further"):
        constraint.allowed()
    constraint.begin()
    assert constraint.allowed().tolist() == first


def test_tokens_end_where_the_schema_does() -> None:
    """A model that has no end of text would have nothing to pick from."""
    model = model_of(tiny_artifact.library(), eos=(), padding=0)
    constraint = Grammars(*model).grammar({"const": 7}).constraint()
    choose, draw = picker(loader.Sampling(), constraint), drawing(model, 1)
    tokens = list(until_complete(iter(lambda: choose(draw(), []), None), constraint))
    assert model.tokenizer.decode(tokens) == "7"
    with pytest.raises(loader.DoesNotFit, match="no token"):
        constraint.allowed()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    (tmp_path / "llguidance.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(loader.MachineLacks, match=r"not installed.*pip install"):
        Grammars(*model_of(tiny_artifact.library())).grammar(PERSON)


def test_schemas_are_compiled_once() -> None:
    grammars = Grammars(*model_of(tiny_artifact.library()))
    first = grammars.grammar(PERSON)
    assert grammars.grammar(dict(PERSON)) is first
    for number in range(json_schema.MOST_KEPT):
        grammars.grammar({"const": number})
    assert grammars.grammar(PERSON) is not first


def test_refusals_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()

    def answer_of(name: str, *_: object, **__: object) -> dict[str, str]:
        tried.append(name)
        return {"error": "it is bad"}

    monkeypatch.setattr(json_schema, "answer_of", answer_of)
    grammars = Grammars(*model_of(tiny_artifact.library()))
    assert not grammars.knows(PERSON)
    for _ in range(3):
        with pytest.raises(loader.BadInput, match="it is bad"):
            grammars.grammar(dict(PERSON))
    assert grammars.knows(PERSON)
    assert len(tried) == 1
