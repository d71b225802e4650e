"""``tokenizer.model``: a SentencePiece ModelProto (sentencepiece_model.proto), read and written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from maxtool.errors import ConfigurationError, MalformedFile
from maxtool.runtime.loader.charsmap import problem_of
from maxtool.tokenizer import checks
from maxtool.tokenizer.vocabulary import SentencePiece, TokenType

# A piece begins with this byte, and so does its text: two bytes of a file become an object.
TAG, MAX_TAGS = b"\n", 1 << 21
ALGORITHMS: dict[int, Literal["bpe", "unigram"]] = {1: "unigram", 2: "bpe"}
SPECIAL = ("bos", "eos", "unk", "pad")


def parse(data: bytes, file: Path) -> tuple[SentencePiece, dict[str, int]]:
    """The vocabulary and the special token ids that a ModelProto holds."""
    proto = _load(data, file)
    pieces = tuple(piece.piece for piece in proto.pieces)
    broken = sum(not isinstance(piece, str) for piece in pieces)
    if broken:  # protobuf hands them out as bytes
        raise MalformedFile(f"{broken} pieces are not UTF-8", file=file)
    scores = tuple(float(piece.score) for piece in proto.pieces)
    checks.tokens(pieces, file)
    checks.scores(scores, file)
    types = checks.types([piece.type for piece in proto.pieces], file)
    _check_supported(proto, file)
    spec = proto.normalizer_spec
    vocabulary = SentencePiece(
        algorithm=ALGORITHMS[proto.trainer_spec.model_type],
        tokens=pieces,
        scores=scores,
        types=types,
        add_dummy_prefix=spec.add_dummy_prefix,
        remove_extra_whitespaces=spec.remove_extra_whitespaces,
        charsmap=spec.precompiled_charsmap,
    )
    check(vocabulary, file)
    return vocabulary, _special_ids(proto.trainer_spec, len(pieces), file)


def serialize(vocabulary: SentencePiece, special_ids: Mapping[str, int]) -> bytes:
    """A ModelProto with the same pieces, scores and types."""
    from sentencepiece import sentencepiece_model_pb2 as schema

    proto = schema.ModelProto()
    rows = zip(vocabulary.tokens, vocabulary.scores, vocabulary.types, strict=True)
    for piece, score, token_type in rows:
        proto.pieces.add(piece=piece, score=score, type=int(token_type))
    spec = proto.trainer_spec
    spec.model_type = {name: code for code, name in ALGORITHMS.items()}[vocabulary.algorithm]
    spec.vocab_size = len(vocabulary.tokens)
    spec.byte_fallback = vocabulary.byte_fallback
    unknown = {} if vocabulary.unknown is None else {"unk": vocabulary.unknown}
    for name in SPECIAL:
        setattr(spec, f"{name}_id", {**unknown, **special_ids}.get(name, -1))
    normalizer = proto.normalizer_spec
    normalizer.name = "identity" if not vocabulary.charsmap else "user_defined"
    normalizer.precompiled_charsmap = vocabulary.charsmap
    normalizer.add_dummy_prefix = vocabulary.add_dummy_prefix
    normalizer.remove_extra_whitespaces = vocabulary.remove_extra_whitespaces
    normalizer.escape_whitespaces = True
    return bytes(proto.SerializeToString())


def check(vocabulary: SentencePiece, file: Path | str) -> None:
    """Refuse byte pieces that are not the 256 bytes, and maps of characters that do not hold up."""
    rows = zip(vocabulary.tokens, vocabulary.types, strict=True)
    byte_pieces = {piece for piece, token_type in rows if token_type is TokenType.BYTE}
    expected = {f"<0x{byte:02X}>" for byte in range(256)}
    if byte_pieces:
        missing = [f"missing {piece}" for piece in sorted(expected - byte_pieces)]
        foreign = [f"not a byte: {piece!r}" for piece in sorted(byte_pieces - expected)]
        checks.refuse([*missing, *foreign], "byte pieces that are not the 256 bytes", file)
    problem = problem_of(vocabulary.charsmap) if vocabulary.charsmap else None
    if problem is not None:
        raise MalformedFile(f"precompiled_charsmap: {problem}", file=file)


def is_byte(piece: str) -> bool:
    """Return whether a piece has the form of one that stands for a byte."""
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _load(data: bytes, file: Path) -> Any:  # noqa: ANN401 - a generated class
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from sentencepiece import sentencepiece_model_pb2 as schema

    if data.count(TAG) > MAX_TAGS:
        raise MalformedFile(f"more than {MAX_TAGS // 2} pieces", file=file)
    proto = schema.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise MalformedFile(f"not a SentencePiece model: {error}", file=file) from None
    return proto


def _check_supported(proto: Any, file: Path) -> None:  # noqa: ANN401 - a generated class
    spec = proto.normalizer_spec
    problems = {
        f"model_type {proto.trainer_spec.model_type} (known: 1 unigram, 2 bpe)": (
            proto.trainer_spec.model_type not in ALGORITHMS
        ),
        "escape_whitespaces is off": not spec.escape_whitespaces,
        "treat_whitespace_as_suffix is on": proto.trainer_spec.treat_whitespace_as_suffix,
    }
    if wrong := [problem for problem, present in problems.items() if present]:
        what = "a SentencePiece model of a kind maxtool cannot use"
        raise ConfigurationError(what, file=file, problems=wrong)


def _special_ids(spec: Any, size: int, file: Path) -> dict[str, int]:  # noqa: ANN401
    ids = {name: int(getattr(spec, f"{name}_id")) for name in SPECIAL}
    known = {name: i for name, i in ids.items() if i >= 0}
    checks.ids(known, size, file)
    return known
