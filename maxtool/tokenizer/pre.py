r"""How byte-level BPE vocabularies split text before merging, by the names GGUF has for it.

A GGUF file names its splitting in ``tokenizer.ggml.pre``; a ``tokenizer.json`` spells it out in
``pre_tokenizer``. Both come down to regular expressions applied one after the other, each cutting
the pieces of the one before (llama.cpp, llama-vocab.cpp, ``llm_tokenizer_bpe``); the spelling here
is that of the ``tokenizers`` library. ``\p{N}`` alone is the library's ``Digits``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from maxtool.errors import ConfigurationError

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_REST}"
_TEKKEN = rf"{_LOWER}|{_UPPER}|\p{{N}}|{_REST_SLASH}"
_GPT4O = rf"{_LOWER}{_CONTRACTIONS}?|{_UPPER}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST_SLASH}"


@dataclass(frozen=True, slots=True)
class Pre:
    """One way to split.

    Attributes:
        regexes: Applied in order, each to the pieces of the one before.
        normalizer: The ``type`` of the normalizer that published tokenizers of this name have.
        ignore_merges: Whether a whole piece that is a token is taken without merging.
        add_bos: What llama.cpp assumes where the file does not say.
    """

    regexes: tuple[str, ...]
    normalizer: str | None = None
    ignore_merges: bool = False
    add_bos: bool = False


# Where several rows are alike, the first is the one written.
TABLE: dict[str, Pre] = {
    "gpt-2": Pre((GPT2,)),
    "llama-bpe": Pre((_LLAMA3,), ignore_merges=True, add_bos=True),
    "llama3": Pre((_LLAMA3,), ignore_merges=True, add_bos=True),
    "llama-v3": Pre((_LLAMA3,), ignore_merges=True, add_bos=True),
    "dbrx": Pre((_LLAMA3,)),
    "qwen2": Pre((_QWEN2,), normalizer="NFC"),
    "deepseek-r1-qwen": Pre((_QWEN2,)),
    "smollm": Pre((r"\p{N}", GPT2)),
    "starcoder": Pre((r"\p{N}", GPT2)),
    "refact": Pre((r"\p{N}", GPT2)),
    "codeshell": Pre((r"\p{N}", GPT2)),
    "command-r": Pre((r"\p{N}", GPT2), normalizer="NFC"),
    "tekken": Pre((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o": Pre((_GPT4O,)),
    "default": Pre((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "falcon": Pre((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    "mpt": Pre((GPT2,)),
    "olmo": Pre((GPT2,)),
    "phi-2": Pre((GPT2,)),
    "jina-v2-code": Pre((GPT2,)),
}


def row(name: str) -> Pre:
    """The row of a GGUF name.

    Raises:
        ConfigurationError: If the name is not in the table; the message lists those that are.
    """
    if name not in TABLE:
        known = ", ".join(sorted(TABLE))
        raise ConfigurationError(f"unknown tokenizer.ggml.pre {name!r}; known are {known}")
    return TABLE[name]


def find(tokenizer: Mapping[str, object]) -> tuple[str | None, str]:
    """The GGUF name for how a parsed ``tokenizer.json`` splits, or None and the reason."""
    regexes = _regexes(tokenizer.get("pre_tokenizer"))
    if regexes is None:
        return None, f"its pre_tokenizer has no GGUF name: {tokenizer.get('pre_tokenizer')!r:.300}"
    normalizer = _type(tokenizer.get("normalizer"))
    model = tokenizer.get("model")
    ignore = bool(model.get("ignore_merges")) if isinstance(model, Mapping) else False
    alike = [name for name, pre in TABLE.items() if pre.regexes == regexes]
    for name in alike:
        if (TABLE[name].normalizer, TABLE[name].ignore_merges) == (normalizer, ignore):
            return name, ""
    rest = f"normalizer {normalizer} and ignore_merges {str(ignore).lower()}"
    return None, f"no GGUF name for its pre_tokenizer {regexes!r:.300} with {rest}"


def pre_tokenizer(pre: Pre) -> dict[str, object]:
    """The ``pre_tokenizer`` of a ``tokenizer.json`` that splits so and then maps bytes."""
    builtin = pre.regexes[-1] == GPT2
    splits = pre.regexes[:-1] if builtin else pre.regexes
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": builtin,
    }
    steps = [*map(_split, splits), byte_level]
    return {"type": "Sequence", "pretokenizers": steps} if splits else byte_level


def _split(regex: str) -> dict[str, object]:
    pattern = {"Regex": regex}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def _type(part: object) -> str | None:
    """The type of a normalizer; a sequence of one is that one, an empty one is none."""
    if not isinstance(part, Mapping):
        return None
    inner = part.get("normalizers")
    if part.get("type") == "Sequence" and isinstance(inner, list) and len(inner) <= 1:
        return _type(inner[0]) if inner else None
    return str(part.get("type"))


def _regexes(part: object) -> tuple[str, ...] | None:
    """The expressions a ``pre_tokenizer`` applies, or None if it does anything else."""
    if not isinstance(part, Mapping):
        return None
    inner = part.get("pretokenizers")
    if part.get("type") != "Sequence" or not isinstance(inner, list):
        return _regexes_of_step(part)
    found: list[str] = []
    for step in inner:
        regexes = _regexes(step)
        if regexes is None:
            return None
        found.extend(regexes)
    return tuple(found)


def _regexes_of_step(step: Mapping[str, object]) -> tuple[str, ...] | None:
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return (GPT2,) if step.get("use_regex", True) else ()
        case {"type": "Digits", "individual_digits": bool(individual)}:
            return (r"\p{N}" if individual else r"\p{N}+",)
        # Either keeps every piece, as the expressions of the table match any text whole.
        case {"type": "Split", "pattern": {"Regex": str(regex)}} if (
            step.get("behavior"),
            step.get("invert"),
        ) in {("Isolated", False), ("Removed", True)}:
            return (regex,)
    return None
