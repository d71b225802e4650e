"""Interpretation of ``quantization_config``: which tensors together make a weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from maxtool.weights import scaled_float8, schemes
from maxtool.weights.composite import View
from maxtool.weights.schemes import float8_settings
from maxtool.weights.schemes.scheme import QuantizedTensor, Unsupported
from maxtool.weights.tensor_info import TensorInfo

QUANTIZATION = "quantization_config"
# Of a model with several parts, the tables in which it may be said of the language model.
TABLES = ("text_config", "llm_config", "language_config")

# What becomes of weights, by whether GGUF's blocks hold their numbers.
READ = {False: "decoded as they are read", True: "read as GGUF's blocks"}

Tensors = Mapping[str, TensorInfo]
Config = Mapping[str, object]


@dataclass(frozen=True)
class Interpretation:
    """Tensors as they are to be seen.

    Attributes:
        tensors: In their order; weights in the place of the tensors that make them.
        config: The configuration, without what has been acted upon.
        notes: What users should know of it.
        unsupported: Why the configuration's quantization is not understood.
    """

    tensors: Tensors
    config: Config | None
    notes: tuple[str, ...] = ()
    unsupported: str = ""


def interpreted(
    tensors: Tensors, metadata: Mapping[str, object], config: Config | None, view: View | None
) -> Interpretation:
    """See tensors as what a configuration says they are.

    Args:
        tensors: As the files have them.
        metadata: The files' own.
        config: The model's configuration, if there is one.
        view: Reads a small tensor; ``None`` if only headers are at hand.

    Raises:
        MalformedFile: If tensors contradict what the configuration says.
    """
    said, rest = _taken_out(config or {})
    if said is None:
        seen, notes = scaled_float8.paired(tensors, None)
        return Interpretation(seen, config, notes)
    try:
        seen, notes = _acted_upon(tensors, metadata, said, view)
    except Unsupported as error:
        seen, notes = scaled_float8.paired(tensors, None)
        return Interpretation(seen, config, notes, unsupported=str(error))
    return Interpretation(seen, rest, notes)


def _taken_out(config: Config) -> tuple[object, Config]:
    """The quantization of the whole or else of the language model, and the other keys."""
    said = config.get(QUANTIZATION)
    if said is not None:
        return said, {key: value for key, value in config.items() if key != QUANTIZATION}
    for name in TABLES:
        table = config.get(name)
        if isinstance(table, Mapping) and table.get(QUANTIZATION) is not None:
            found, rest = _taken_out(table)
            return found, {**config, name: rest}
    return None, config


def _acted_upon(
    tensors: Tensors, metadata: Mapping[str, object], said: object, view: View | None
) -> tuple[Tensors, tuple[str, ...]]:
    """Tensors as a ``quantization_config`` says to see them, and notes."""
    if not isinstance(said, dict):
        raise Unsupported("it is not a table")
    block = scaled_float8.scheme(said)
    if block is not None or said.get("quant_method") in float8_settings.METHODS:
        float8_settings.check_keys(said)
        rounded = said.get("quant_method") == float8_settings.COMPRESSED
        return scaled_float8.paired(tensors, block, rounded=rounded)
    found = schemes.seen_as_weights(tensors, schemes.layouts(said, metadata), view)
    weights = [info for info in found.values() if isinstance(info, QuantizedTensor)]
    if not weights and view is not None:
        raise Unsupported("the file has no tensors of this method")
    counts = Counter((info.label, info.encoding is not None) for info in weights)
    return found, tuple(
        f"{n} {label} weights are {READ[kept]}" for (label, kept), n in counts.items()
    )
