"""A tokenizer cut to the rows of its model, which are fewer than its tokens now and then.

Gemma 3 has one token more than rows, as have many to which tokens were added and no rows. The model
knows nothing of such ids: llama.cpp's converter leaves their tokens out, and so does this. (Where
there are more rows than tokens, what writes the vocabulary fills it up.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from maxtool.errors import ConfigurationError
from maxtool.tokenizer.fitting_json import cut_json
from maxtool.tokenizer.vocabulary import BytePairs, SentencePiece, Tokenizer, Vocabulary

SHOWN = 3  # tokens in a note


def fitted(tokenizer: Tokenizer, rows: int) -> tuple[Tokenizer, list[str]]:
    """A tokenizer without the tokens that a model of so many rows has none for, and notes.

    It is the same one if all its ids have rows. It is an error if it cannot do without a token:
    the unknown one, or one that it puts around every text.
    """
    lost = _beyond(tokenizer, rows)
    if tokenizer.size <= rows and not lost:
        return tokenizer, []
    text, named = tokenizer.json, _names(tokenizer, rows)
    if text is not None and tokenizer.json_size > rows:
        text, gone = cut_json(text, rows)
        named = gone | named
    _check_needed(tokenizer, rows, named)
    vocabulary = tokenizer.vocabulary
    cut = replace(
        tokenizer,
        vocabulary=None if vocabulary is None else _cut(vocabulary, rows),
        added=tuple(token for token in tokenizer.added if token.id < rows),
        special_ids={name: i for name, i in tokenizer.special_ids.items() if i < rows},
        stops=tuple(i for i in tokenizer.stops if i < rows),
        json=text,
        json_size=min(tokenizer.json_size, rows),
        files={},
    )
    return cut, _notes(tokenizer.size, rows, named, lost)


def _beyond(tokenizer: Tokenizer, rows: int) -> dict[str, int]:
    """The special ids that have no rows, by name."""
    lost = {name: i for name, i in tokenizer.special_ids.items() if i >= rows}
    others = [i for i in tokenizer.stops if i >= rows and i not in lost.values()]
    return lost | ({"end": others[0]} if others else {})


def _names(tokenizer: Tokenizer, rows: int) -> dict[int, str]:
    """The tokens that have no rows, by id."""
    tokens = tokenizer.vocabulary.tokens if tokenizer.vocabulary else ()
    added = {token.id: token.content for token in tokenizer.added if token.id >= rows}
    return dict(enumerate(tokens[rows:], rows)) | added


def _notes(size: int, rows: int, named: Mapping[int, str], lost: Mapping[str, int]) -> list[str]:
    notes = []
    if size > rows:
        told = ", ".join(f"{named[i]!r:.80}" for i in sorted(named)[:SHOWN])
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        what = f"the tokenizer has {size} tokens and the model {rows} rows for them"
        notes.append(f"{what}: {told}{more} left out")
    ids = ", ".join(f"{name} ({i})" for name, i in lost.items())
    return [*notes, f"left out as the model has no row for it: {ids}"] if ids else notes


def _check_needed(tokenizer: Tokenizer, rows: int, named: Mapping[int, str]) -> None:
    """Refuse to leave out what every text, or every unknown character, becomes."""
    ids, vocabulary = tokenizer.special_ids, tokenizer.vocabulary
    needed = [ids[name] for name, adds in tokenizer.add.items() if adds and name in ids]
    if isinstance(vocabulary, SentencePiece) and vocabulary.unknown is not None:
        needed.append(vocabulary.unknown)
    lacking = [f"{named.get(i, '?')!r:.80} ({i})" for i in sorted({*needed}) if i >= rows]
    if lacking:
        what = f"the tokenizer needs tokens that the model, with {rows} rows, has none for"
        raise ConfigurationError(what, problems=lacking)


def _cut(vocabulary: Vocabulary, rows: int) -> Vocabulary:
    cut = replace(vocabulary, tokens=vocabulary.tokens[:rows], types=vocabulary.types[:rows])
    if isinstance(cut, SentencePiece):
        return replace(cut, scores=cut.scores[:rows], merges=_kept(cut))
    return replace(cut, merges=_kept(cut)) if isinstance(cut, BytePairs) else cut


def _kept(vocabulary: SentencePiece | BytePairs) -> tuple[tuple[str, str], ...]:
    """The merges of tokens that are there."""
    known = set(vocabulary.tokens)
    pairs = vocabulary.merges
    return tuple(pair for pair in pairs if known.issuperset((*pair, "".join(pair))))
