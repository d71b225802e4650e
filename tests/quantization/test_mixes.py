"""The types that mixes give the tensors of models, against those that llama-quantize gave them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from maxtool.dtype import DType
from maxtool.quantization import QuantizationEncoding as E
from maxtool.quantization.mixes import ALIASES, MIXES, ModelFacts
from maxtool.quantization.scheme import ChosenType, Scheme, choose_types, is_quantizable
from tests.data.record_mixes import runs

FILE = Path(__file__).parents[1] / "data" / "mixes.json.gz"
NAMES = {DType.float16: "F16", DType.bfloat16: "BF16", DType.float32: "F32"}


@cache
def recorded() -> dict[str, Any]:
    return json.loads(gzip.decompress(FILE.read_bytes()))  # type: ignore[no-any-return]


def chosen(case: dict[str, Any], scheme: Scheme, **facts: Any) -> str:
    """The types that we choose for a recorded model, as they are recorded."""
    kept = {key: case["model"][key] for key in ("architecture", "layers", "heads", "key_heads")}
    model = ModelFacts(**kept, experts=case["model"]["experts"], **facts)
    shapes = {name: tuple(shape) for name, shape in case["shapes"].items()}
    types = choose_types(shapes, scheme, model)
    return runs([type_name(types[name]) if name in types else "F32" for name in sorted(shapes)])


def type_name(chosen: ChosenType) -> str:
    stored = chosen.type
    return NAMES[stored] if isinstance(stored, DType) else stored.name


def test_what_was_recorded() -> None:
    assert len(recorded()) > 30
    for case in recorded().values():
        assert case["plain"].keys() == MIXES.keys() - {"Q2_K_S"}
        assert case["weighed"].keys() == MIXES.keys()


@pytest.mark.parametrize("mix", MIXES)
def test_types_are_those_of_llama_quantize(mix: str) -> None:
    for key, case in recorded().items():
        if mix in case["plain"]:
            assert chosen(case, Scheme.named(mix)) == case["plain"][mix], key
        weighed = chosen(case, Scheme.named(mix), has_importance=True)
        assert weighed == case["weighed"][mix], key


@pytest.mark.parametrize(("key_heads", "expected"), [(0, E.Q3_K), (2, E.Q4_K), (4, E.Q3_K)])
def test_heads_of_a_first_layer_without_attention(key_heads: int, expected: E) -> None:
    """llama-quantize asks the first layer, of which no head of keys is shared then."""
    model = ModelFacts("lfm2", layers=2, heads=8, key_heads=key_heads)
    types = choose_types({"blk.1.attn_v.weight": (64, 256)}, Scheme.named("Q2_K"), model)
    assert types["blk.1.attn_v.weight"].type is expected


def test_one_type_for_all() -> None:
    for key, case in recorded().items():
        for mix, types in case["pure"].items():
            assert chosen(case, replace(Scheme.named(mix), pure=True)) == types, key


def test_an_importance_matrix_changes_some_mixes() -> None:
    different = {
        mix
        for case in recorded().values()
        for mix, types in case["plain"].items()
        if case["weighed"][mix] != types
    }
    assert different == {"Q4_0", "Q5_0", "IQ4_NL", "IQ4_XS"}


def test_names_that_stand_for_mixes() -> None:
    for name, mix in ALIASES.items():
        assert Scheme.named(name) == Scheme.named(mix) == Scheme(MIXES[mix])
    assert Scheme.named("MXFP4") == Scheme(MIXES["MXFP4_MOE"], pure=True)
    with pytest.raises(KeyError):
        Scheme.named("Q4_K_XL")


SHAPES = {
    "token_embd.weight": (4, 256),
    "blk.0.attn_v.weight": (4, 256),
    "blk.1.attn_v.weight": (4, 256),
    "blk.2.attn_v.weight": (4, 100),
    "output.weight": (4, 256),
}
MODEL = ModelFacts("llama", 3)


def test_patterns_and_types_by_role() -> None:
    globs = (
        ("*.attn_v.*", E.Q8_0),
        ("blk.1.*", E.Q4_0),
        ("token*", E.Q5_0),
        ("o*", DType.bfloat16),
    )
    scheme = replace(Scheme.named("Q4_K_M"), overrides=globs)
    types = choose_types(SHAPES, scheme, MODEL)
    assert [types[name].type for name in SHAPES] == [
        *(E.Q5_0, E.Q8_0, E.Q4_0, DType.float16, DType.bfloat16)
    ]
    assert types["blk.2.attn_v.weight"].missed is E.Q8_0
    scheme = replace(scheme, head=E.Q6_K, embedding=E.Q2_K)
    types = choose_types(SHAPES, scheme, MODEL)
    assert types["output.weight"].type is E.Q6_K
    assert types["token_embd.weight"].type is E.Q2_K


def test_the_type_of_the_head_is_that_of_an_embedding_tied_to_it() -> None:
    tied = {name: shape for name, shape in SHAPES.items() if name != "output.weight"}
    scheme = replace(Scheme.named("Q4_K_M"), head=E.Q8_0)
    assert choose_types(tied, scheme, MODEL)["token_embd.weight"].type is E.Q8_0
    assert choose_types(SHAPES, scheme, MODEL)["token_embd.weight"].type is E.Q4_K


def test_tensors_with_types_of_their_own_are_not_counted() -> None:
    """Later layers count as if they came one earlier, as with llama-quantize."""
    scheme = replace(Scheme.named("Q4_K_S"), overrides=(("blk.0.*", E.Q8_0),))
    shapes = {f"blk.{layer}.attn_v.weight": (2, 256) for layer in range(7)}
    types = [each.type for each in choose_types(shapes, scheme, MODEL).values()]
    assert types == [E.Q8_0, *4 * [E.Q5_K], *2 * [E.Q4_K]]


@pytest.mark.parametrize("name", ["TQ1_0", "TQ2_0"])
def test_a_single_ternary_type_spares_embedding_and_head(name: str) -> None:
    types = choose_types(SHAPES, replace(Scheme.named(name), pure=True), MODEL)
    kept = {tensor for tensor, each in types.items() if each == ChosenType(DType.float16)}
    assert kept == {"token_embd.weight", "output.weight"}
    assert types["blk.0.attn_v.weight"].type is E[name]


@pytest.mark.parametrize(
    ("name", "shape", "quantizable"),
    [
        ("blk.0.attn_q.weight", (2, 32), True),
        ("blk.0.attn_q.weight", (1, 32), False),
        ("blk.0.attn_q.weight", (32,), False),
        ("blk.0.attn_q.weight", (2, 0), False),
        ("blk.0.ffn_up_exps.weight", (2, 1, 32), True),
        ("blk.0.attn_q.bias", (2, 32), False),
        ("blk.0.attn_q_norm.weight", (2, 32), False),
        ("blk.0.ffn_gate_inp.weight", (2, 32), False),
        ("position_embd.weight", (2, 32), False),
        ("altup_proj.weight", (3, 2, 32), False),
        ("blk.0.laurel_l.weight", (2, 32), False),
        ("per_layer_model_proj.weight", (2, 32), False),
        ("per_layer_token_embd.weight", (2, 32), True),
    ],
)
def test_what_is_quantized_at_all(name: str, shape: tuple[int, ...], quantizable: bool) -> None:
    assert is_quantizable(name, shape) is quantizable
