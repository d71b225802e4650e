"""Keys of a ``quantization_config``, each of which must be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from maxtool.weights.schemes.scheme import Unsupported

MAX_SHOWN = 60


@dataclass(frozen=True)
class OneOf:
    """Values that a key may have; each stands for values of its own type only."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:  # noqa: ANN401 - any JSON value
        object.__setattr__(self, "values", values)

    def problem(self, value: Any) -> str | None:  # noqa: ANN401
        """Return what is supported, if ``value`` is not."""
        if any(type(value) is type(known) and value == known for known in self.values):
            return None
        return "supported: " + ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Count:
    """A positive whole number, or another that has a meaning of its own."""

    others: tuple[int, ...] = ()

    def problem(self, value: Any) -> str | None:  # noqa: ANN401
        """Return what is supported, if ``value`` is not."""
        if type(value) is int and (value > 0 or value in self.others):
            return None
        return "supported: " + ", ".join(["positive numbers", *map(str, self.others)])


class Anything:
    """A key that says how a model was quantized, or runs, and nothing of what its files mean."""

    def problem(self, value: Any) -> str | None:  # noqa: ANN401
        """Accept every value."""


class Rule(Protocol):
    """Rule for the values of a key."""

    def problem(self, value: Any) -> str | None:  # noqa: ANN401 - any JSON value
        """Return what is supported, if ``value`` is not."""


FLAG = OneOf(True, False)
OFF = OneOf(False)
ANYTHING = Anything()


def anything(*names: str) -> dict[str, Rule]:
    """Rules for keys that say nothing of what files mean."""
    return dict.fromkeys(names, ANYTHING)


# What AutoRound says of its tuning in the configurations of the formats that it writes.
AUTO_ROUND = anything(
    *("amp", "autoround_version", "batch_size", "enable_minmax_tuning", "enable_norm_bias_tuning"),
    *("enable_quanted_input", "gradient_accumulate_steps", "iters", "low_gpu_mem_usage", "lr"),
    *("minmax_lr", "nsamples", "provider", "scale_dtype", "seqlen", "to_quant_block_names"),
)


def check(
    config: Mapping[str, Any],
    rules: Mapping[str, Rule],
    *,
    needed: tuple[str, ...] = (),
    where: str = "",
) -> None:
    """Check every key of a table; ``Unsupported`` lists all that is wrong.

    Null, an empty table and an empty list are absence.
    """
    problems = [f"{where}{key} is missing" for key in needed if _absent(config.get(key))]
    for key, value in config.items():
        if _absent(value):
            continue
        rule = rules.get(key)
        problem = rule.problem(value) if rule else "unknown"
        if problem:
            problems.append(f"{where}{key} = {shown(value)} ({problem})")
    if problems:
        raise Unsupported("; ".join(problems))


def _absent(value: object) -> bool:
    return value is None or value in ({}, [])


def shown(value: object) -> str:
    """A value as a line can show it."""
    try:
        text = repr(value)
    except RecursionError:
        return "..."
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
