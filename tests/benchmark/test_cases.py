"""Cases of artifacts: which peak their operations are compared with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from maxtool.benchmark.cases import Settings, cases_of
from maxtool.errors import UsageError
from maxtool.runtime.loader.specs import EntrySpec, InputSpec, WeightSpec

FLOATS = WeightSpec("a", "float32", (1, 8, 4), unpacked=(4, 8))
BLOCKS = WeightSpec("b", "uint8", (1, 1, 544), unpacked=(16, 32), encoding="Q8_0")
INPUT = InputSpec("x", "float32", ("rows", 8))


def manifest(*weights: WeightSpec, **entry: Any) -> Any:
    entries = {"forward": EntrySpec("forward", (INPUT,), (), state=False, **entry)}
    empty: dict[str, object] = {"limits": {}, "root": {}, "tables": (), "state": ()}
    about = {"task": None, "target": {"kind": "cpu"}, "context": None, "folder": "model"}
    return SimpleNamespace(weights=weights, entries=entries, **empty, **about)


@pytest.mark.parametrize(
    ("weights", "peak"),
    [((), "float32"), ((FLOATS,), "float32"), ((FLOATS, BLOCKS), "int8"), ((BLOCKS,), "int8")],
)
def test_quantized_products_are_compared_with_those_of_bytes(
    weights: tuple[WeightSpec, ...], peak: str
) -> None:
    assert [case.peak for case in cases_of(manifest(*weights), Settings())] == [peak]


def test_sizes_are_the_least_or_those_asked_for() -> None:
    module = manifest(FLOATS, least={"rows": 3})
    (least,) = cases_of(module, Settings())
    (asked,) = cases_of(module, Settings(sizes={"rows": 5}))
    assert (least.sizes, asked.sizes) == ({"rows": 3}, {"rows": 5})
    assert asked.label == "forward rows=5"


def test_a_size_is_at_least_one() -> None:
    with pytest.raises(UsageError, match="--size rows is 0"):
        Settings(sizes={"rows": 0})


def test_a_decoder_with_slots_is_measured_at_every_power_of_two() -> None:
    about: dict[str, Any] = {"task": "generate", "target": {"kind": "cpu"}, "folder": "model"}
    rest: dict[str, Any] = {"limits": {}, "root": {}, "tables": (), "state": (), "entries": {}}
    decoder: Any = SimpleNamespace(weights=(), context=600, batch=12, **about, **rest)
    read, *made = cases_of(decoder, Settings(tokens=3))
    assert (read.step, [case.sizes["texts"] for case in made]) == ("prefill", [1, 2, 4, 8, 12])
    assert {case.units for case in made if case.step_units == 8} == {24}
    (_, asked) = cases_of(decoder, Settings(batches=[5]))
    assert asked.label == "decode 5\N{MULTIPLICATION SIGN} at 512"
    with pytest.raises(UsageError, match="at most 12 texts at once"):
        cases_of(decoder, Settings(batches=[13]))
    decoder.batch = 1
    with pytest.raises(UsageError, match="--batch means nothing"):
        cases_of(decoder, Settings(batches=[1]))
