"""JSON schemas, compiled to grammars for the tokens of a model by the package llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from .bounded import answer_of
from .constraint import Constraint, told
from .errors import BadInput, MachineLacks, reading
from .strict_json import strict_loads
from .token_bytes import bytes_of_tokens
from .tokens import encoded

ANY_OBJECT: Mapping[str, object] = {"type": "object"}
LONGEST = 1 << 20  # bytes of a schema
SECONDS = 2  # of the processor, that a grammar may take
MOST_KEPT = 32
# Bounds of each step: 20,000 states of the lexer take some 40 MB.
LIMITS = {"verbose_errors": False, "max_lexer_states": 20_000}
# How JSON is written. Nothing is left out that a schema says (``lenient``), and a line may end, but
# a model that writes nothing but spaces does not go on for ever.
STYLE = {
    "lenient": False,
    "whitespace_flexible": True,
    "whitespace_pattern": r" |\n[ \t]{0,20}",
    "item_separator": ",",
    "key_separator": ":",
}
# Each token that leads to a text of the grammar may come, not only those that a tokenizer would
# make of it.
HEAD = '%llguidance {"no_forcing": true}\nstart: %json '


class Grammar:
    """A schema that is compiled for a model."""

    def __init__(self, matcher: Any, count: int) -> None:  # noqa: ANN401
        self._matcher, self._count, self._lock = matcher, count, Lock()

    def constraint(self) -> Constraint:
        """The constraint of a text that begins."""
        return Constraint(self._fresh, self._count)

    def _fresh(self) -> Any:  # noqa: ANN401
        with self._lock:
            return self._matcher.deep_copy()


class Grammars:
    """Schemas compiled for the tokens of one model; the last are kept, refused ones too."""

    def __init__(self, tokenizer: Any, count: int, ends: Sequence[int]) -> None:  # noqa: ANN401
        """Prepare; a model has ``count`` logits, and those of ``ends`` end a text."""
        self._vocabulary = tokenizer, count, ends
        self._count, self._lock = count, Lock()
        self._kept: dict[str, Grammar | str] = {}  # or why it is refused

    def grammar(self, schema: Mapping[str, object]) -> Grammar:
        """Compile a schema.

        Raises:
            BadInput: If it is no schema, asks for what is not supported, or is too complex.
            MachineLacks: If there is no llguidance.
        """
        text = _grammar_text(schema)
        with self._lock:
            if (known := self._kept.pop(text, None)) is not None:
                self._kept[text] = known
        if known is None:
            known = self._compiled(text)
            with self._lock:
                self._kept[text] = known
                while len(self._kept) > MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
        if isinstance(known, str):
            raise BadInput(known)
        return known

    def knows(self, schema: Mapping[str, object]) -> bool:
        """Return whether a schema has been compiled, or refused, and is kept."""
        text = _grammar_text(schema)
        with self._lock:
            return text in self._kept

    def _compiled(self, text: str) -> Grammar | str:
        """The grammar, or what is wrong with it."""
        if error := _found_wrong(text):
            return _refused(error)
        import llguidance

        limits = llguidance.LLParserLimits(**LIMITS)
        with self._lock:
            tokenizer = self._tokenizer
        matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=limits)
        if matcher.is_error():
            return _refused(matcher.get_error())
        return Grammar(matcher, self._count)

    @cached_property
    def _tokenizer(self) -> Any:  # noqa: ANN401 - an optional package
        import llguidance

        vocabulary = _Vocabulary(*self._vocabulary)
        return llguidance.LLTokenizer(vocabulary, eos_token=vocabulary.ends)


class _Vocabulary:
    """The tokens of a model, as llguidance asks for them."""

    bos_token_id = None
    is_tokenizer_wrapper = True

    def __init__(self, tokenizer: Any, count: int, eos: Sequence[int]) -> None:  # noqa: ANN401
        ends = [token for token in eos if token < count]
        self._tokenizer, self.tokens = tokenizer, bytes_of_tokens(tokenizer, count)
        for token in ends:
            self.tokens[token] = b""
        if not ends:  # none is ever picked then, as there are no logits for this one
            ends = [count]
            self.tokens.append(b"")
        self.ends, self.eos_token_id = ends, ends[0]
        self.special_token_ids = [i for i, data in enumerate(self.tokens) if not data]

    def __call__(self, text: str) -> list[int]:
        """The tokens of a text."""
        return encoded(self._tokenizer, text)


def read_schema(file: Path) -> dict[str, object]:
    """The schema of a file.

    Raises:
        BadInput: If it cannot be read, or is not a JSON object.
    """
    with reading("the JSON schema", file), file.open("rb") as stream:
        raw = stream.read(LONGEST + 1)
    if len(raw) > LONGEST:
        raise BadInput(f"a JSON schema has at most {LONGEST} bytes", file=file)
    try:
        schema = strict_loads(raw)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput(f"the JSON schema is not JSON: {why}", file=file) from None
    if not isinstance(schema, dict):
        raise BadInput("a JSON schema must be an object", file=file)
    return schema


def _grammar_text(schema: Mapping[str, object]) -> str:
    try:
        text = json.dumps({**schema, "x-guidance": STYLE})
    except RecursionError:
        raise BadInput("the JSON schema is nested too deeply") from None
    if len(text) > LONGEST:
        raise BadInput(f"a JSON schema has at most {LONGEST} bytes")
    _check_integers(schema)
    return f"{HEAD}{text}\n"


def _check_integers(schema: Mapping[str, object]) -> None:
    """Refuse an integer that llguidance would round to the nearest float64."""
    waiting: list[object] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int) and not _is_float(value):
            raise BadInput(f"the JSON schema has the integer {value!s:.80}, which no float64 is")
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)


def _is_float(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _found_wrong(text: str) -> str:
    """Return what keeps a grammar from being compiled within bounds; empty if nothing does."""
    request = {"grammar": text, "limits": LIMITS}
    answer = answer_of("grammar_check.py", request, seconds=SECONDS, most=1 << 24)
    if "missing" in answer:
        what = f"JSON schemas need the package llguidance, which {answer['missing']}"
        raise MachineLacks(what, hint="pip install 'llguidance>=1.9'")
    return str(answer.get("error", ""))


def _refused(error: str) -> str:
    return f"the JSON schema cannot be used: {told(error)}"
