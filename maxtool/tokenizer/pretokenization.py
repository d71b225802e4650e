r"""Pre-tokenizers: splits of text for byte-level BPE before merging, by their names in GGUF.

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
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_REST_SLASH = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_REST}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_SEED = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_TEKKEN = rf"{_LOWER}|{_UPPER}|\p{{N}}|{_REST_SLASH}"
_GPT4O = rf"{_LOWER}{_CONTRACTIONS}?|{_UPPER}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST_SLASH}"
_BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
_HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DIGIT, _DIGITS, _THREE = r"\p{N}", r"\p{N}+", "[0-9][0-9][0-9]"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK_LETTERS = (  # spelled out in the published files
    r"\s?[A-Za-z"
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
    "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+"
)
_DEEPSEEK = (
    r"[\r\n]",
    _DEEPSEEK_LETTERS,
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _HAN,
    _DIGIT,
)
# Other spellings of an expression in published files, which match the same.
_SPELLINGS = {
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
    + count
    + r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+": regex
    for count, regex in (("{1,3}", _LLAMA3), ("", _QWEN2))
}


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """One way to split."""

    regexes: tuple[str, ...]  # applied in order, each to the pieces of the one before
    normalizer: str | None = None  # its type in published tokenizers of this name
    ignore_merges: bool = False  # whether a whole piece that is a token is taken without merging
    add_bos: bool = False  # what llama.cpp assumes where the file does not say
    # Whether expressions behind GPT-2's see bytes as characters already: Falcon's published file.
    bytes_first: bool = False


# Names, those of rows that are alike together: the first of them is the one written.
_GROUPS: Mapping[str, PreTokenizer] = {
    "gpt-2 phi-2 roberta-bpe exaone4 gigachat a.x-4.0 mellum jina-v1-en jina-v2-code jina-es "
    "jina-de jina-v2-es jina-v2-de jais trillion granite-docling": PreTokenizer((GPT2,)),
    "olmo mpt modern-bert": PreTokenizer((GPT2,), normalizer="NFC"),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": PreTokenizer(
        (_LLAMA3,), ignore_merges=True, add_bos=True
    ),
    "glm4 glm5": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "dbrx smaug-bpe chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2 megrez stablelm2 f2llmv2": PreTokenizer((_QWEN2,), normalizer="NFC"),
    "deepseek-r1-qwen kormo hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe": (
        PreTokenizer((_QWEN2,))
    ),
    "qwen35": PreTokenizer((_QWEN35,), normalizer="NFC"),
    "seed-coder": PreTokenizer((_SEED,)),
    "smollm starcoder refact codeshell exaone minerva-7b": PreTokenizer((_DIGIT, GPT2)),
    "command-r": PreTokenizer((_DIGIT, GPT2), normalizer="NFC"),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o llama4 kanana2 minimax-m2": PreTokenizer((_GPT4O,)),
    "deepseek-llm": PreTokenizer(_DEEPSEEK),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, _DIGIT)),
    "deepseek-v3 hunyuan-dense joyai-llm": PreTokenizer(_DEEPSEEK3),
    "bloom poro-chat gpt3-finnish": PreTokenizer((_BLOOM,)),
    "viking": PreTokenizer((_BLOOM, _DIGIT)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, _DIGITS, _THREE), bytes_first=True),
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, _DIGITS, _THREE)),
}
TABLE = {name: pre for names, pre in _GROUPS.items() for name in names.split()}


def row(name: str) -> PreTokenizer:
    """The row of a GGUF name; an error for any other lists those that are."""
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


def pre_tokenizer(pre: PreTokenizer) -> dict[str, object]:
    """The ``pre_tokenizer`` of a ``tokenizer.json`` that splits so, and maps bytes."""
    within = pre.bytes_first or pre.regexes[-1] == GPT2
    at = pre.regexes.index(GPT2) if within else len(pre.regexes)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = within
    steps = [*map(split, pre.regexes[:at]), byte_level, *map(split, pre.regexes[at + 1 :])]
    return {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else byte_level


def split(regex: str) -> dict[str, object]:
    """The step that cuts a text at what an expression matches, and keeps all of it."""
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
    found = [_regexes(step) for step in inner]
    return None if None in found else tuple(regex for regexes in found for regex in regexes or ())


def _regexes_of_step(step: Mapping[str, object]) -> tuple[str, ...] | None:
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return (GPT2,) if step.get("use_regex", True) else ()
        case {"type": "Digits", "individual_digits": bool(individual)}:
            return (_DIGIT if individual else _DIGITS,)
        case {"type": "Punctuation", "behavior": "Contiguous"}:
            return TABLE["falcon"].regexes[:1]
        # Either keeps every piece, as the expressions of the table match any text whole.
        case {"type": "Split", "pattern": {"Regex": str(regex)}} if (
            step.get("behavior"),
            step.get("invert"),
        ) in {("Isolated", False), ("Removed", True)}:
            spelled = regex.replace("\r", r"\r").replace("\n", r"\n")
            return (_SPELLINGS.get(spelled, spelled),)
    return None
