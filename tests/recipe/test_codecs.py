"""Every codec, both ways: what is written is read as the same value."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from maxtool.architectures.activation_functions import ACTIVATIONS
from maxtool.recipe.codec_type import Unspellable
from maxtool.recipe.codecs import CODECS, encoded
from maxtool.recipe.expressions import Undefined, same
from maxtool.recipe.fieldtypes import TYPES
from maxtool.recipe.label_codecs import UNNAMED
from maxtool.recipe.schema import Source, Spelling
from maxtool.recipe.vision_codecs import gated

LAYERS = 6
ACTIVATED = st.sampled_from([*ACTIVATIONS])
FLAGS = st.lists(st.booleans(), min_size=LAYERS, max_size=LAYERS).map(tuple)
SIZES = st.integers(1, 1 << 20)
FACTORS = st.floats(1e-3, 1e3)
SHARES = st.lists(
    st.integers(0, 9999).map(lambda share: share / 10000), min_size=LAYERS, max_size=LAYERS
).map(tuple)
LABELS = st.lists(st.text(max_size=3), min_size=1, max_size=4, unique=True).map(tuple)
PAIRS = st.tuples(st.integers(0, 9), st.integers(10, 19))
# The fields that codecs look at; a window, so that flags of windows are written.
VALUES: dict[str, Any] = {
    "n_layers": LAYERS,
    "n_heads": 4,
    "hidden_size": 96,
    "dense_features": (7, 96),
    "image_size": 14,
    "patch_size": 4,
    "depths": (1, 2, 3),
    "head_dim": 16,
    "rope_factor": None,
    "rope_theta": 5000.0,
    "norm": "layer",
    "norm_eps": 1e-5,
    "expert_scores": "sigmoid_of_chosen",
    "context_length": 4096,
    "position_offset": 2,
    "pad_token_id": 1,
    "rope_original_context": 1024,
    "rotary_dim": 8,
    "sliding_window": 512,
    "sliding_layers": (True, True, False, True, True, False),
    "rope_mscale_all_dim": 0.5,
    "rope_attention_factor": 1.2345,
    "expert_size": 48,
    "block": "parallel",
    "rope_layers": (True, True, True, False, True, True),
    "attention_layers": (False, True, False, False, True, False),
    "mlp_layers": (True, False, False, True, False, False),
    "expert_layers": (False, False, False, True, False, False),
    "intermediate_size": 40,
    "n_kv_heads": 2,
    "state_heads": 6,
    "state_key_dim": 16,
    "n_labels": 3,
    "score_tokens": (5, 3),
    "n_experts": 4,
    "hidden_act": "gelu_tanh",
    "mlp": "gated",
    "kv_shared_layers": 2,
    "value_layers": (True, True, False, True, False, False),
    "layer_widths": None,
    "layer_heads": None,
    "local_head_dim": 8,
    "local_kv_heads": 4,
}


def periodic(most: int = LAYERS + 1) -> st.SearchStrategy[tuple[bool, ...]]:
    return st.integers(1, most).map(
        lambda every: tuple((layer + 1) % every != 0 for layer in range(LAYERS))
    )


def stepped() -> st.SearchStrategy[tuple[bool, ...]]:
    """Every n-th layer, from some layer on."""
    return st.tuples(st.integers(1, LAYERS), st.integers(0, LAYERS)).map(
        lambda of: tuple((i + 1) % of[0] == 0 and i >= of[1] for i in range(LAYERS))
    )


def every() -> st.SearchStrategy[tuple[bool, ...]]:
    """Every n-th layer, or none."""
    return st.integers(0, LAYERS).map(
        lambda n: tuple(n > 0 and (i + 1) % n == 0 for i in range(LAYERS))
    )


def offset() -> st.SearchStrategy[tuple[bool, ...]]:
    """Every n-th layer, from one on that is less than n."""
    return st.tuples(st.integers(1, LAYERS + 1), st.integers(0, LAYERS)).map(
        lambda of: tuple(i % of[0] == of[1] % of[0] for i in range(LAYERS))
    )


# The layers that llama.cpp gives chunks.
PERIOD = tuple((i + 1) % 4 != 0 for i in range(LAYERS))

# The layers with a window, and those with one or without experts.
WINDOWED = VALUES["sliding_layers"]
WITH_DENSE = tuple(
    window or not sparse for window, sparse in zip(WINDOWED, VALUES["expert_layers"], strict=True)
)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "tokens_of_scores": PAIRS | st.tuples(SIZES),
    "tokens_by_labels": PAIRS,
    "scored_by": st.just("tokens"),
    "scored_by_rank": st.just("tokens"),
    "never_scored": st.none(),
    "activation": ACTIVATED,
    "older_activation": ACTIVATED,
    "gemma_activation": ACTIVATED,
    "apertus_activation": ACTIVATED | st.just("xielu"),
    "nomic_activation": ACTIVATED,
    "silu_whatever_is_said": st.just("silu"),
    "t5_activation": ACTIVATED,
    "t5_gate": st.sampled_from(["gated", "plain"]),
    "scaled_heads": st.booleans(),
    "windows_behind_first": FLAGS,
    "rotated_or_dense": st.sampled_from([WINDOWED, WITH_DENSE]),
    "rotated_or_first": st.just(WITH_DENSE),
    "first_said": SIZES.filter(lambda size: size != 48),
    "shared_if_any": st.none() | st.integers(1, 9).map(lambda count: 48 * count),
    "norm_by_eps": st.sampled_from(["rms", "layer"]),
    "eps_of_norm": FACTORS,
    "added_up_to_one": st.booleans(),
    "gates_by_word": st.booleans(),
    "gates_by_rows": st.booleans(),
    "half_or_share_of_head": st.integers(1, 16),
    "if_windows": st.none() | SIZES,
    "share_if_windows": st.none() | st.integers(1, 16),
    "confirmed": SIZES,
    "share_confirmed": st.integers(1, 16),
    "windows_confirmed": FLAGS,
    "experts_confirmed": FLAGS,
    "twice_confirmed": st.just(2 * VALUES["n_kv_heads"]),
    "one_more_than_before": SIZES,
    "switches_before_predicted": FLAGS,
    "kv_heads_before_predicted": SIZES,
    "local_kv_heads_before_predicted": SIZES,
    "rotated_by_base": FLAGS,
    "all_or_listed": FLAGS,
    "indexed_layers": st.just((True,) * LAYERS),
    "indexed_or_shared": FLAGS,
    "indexed_by_context": FLAGS,
    "base_of_layers": FACTORS,
    "linear_factor": st.just(1.0) | st.floats(1.5, 9),
    "ntk_factor": st.sampled_from([1.0, 8.0 ** (2 / 16)]),
    "ntk_base": st.floats(1e-3, 1e3),
    "two_dense_layers": st.none() | st.just((96,)) | SIZES.map(lambda width: (width, 96)),
    "dense_without_biases": st.just((False, False)),
    "dense_without_activations": st.just(("identity", "identity")),
    "terms_of_distances": st.sampled_from([None, ("c2p",), ("p2c",), ("c2p", "p2c")]),
    "limit_of_distances": st.none() | SIZES,
    "above_zero_or_null": st.none() | SIZES,
    "norm_of_distances": st.booleans(),
    "reciprocal": FACTORS,
    "rsqrt": FACTORS,
    "share_of_head": st.integers(1, 16),
    "position_rows": SIZES,
    "after_padding": st.just(2),
    "zero_is_null": st.none() | SIZES,
    "unscaled_attention": st.sampled_from([None, 1.0]),
    "gemma2_attention_scale": FACTORS | st.just(16**-0.5),
    "gemma3_attention_scale": FACTORS | st.just(16**-0.5),
    "longrope_attention": st.none() | st.floats(1.5, 9),
    "whole_context": st.just(4096),
    "shared_experts": st.none() | st.integers(1, 9).map(lambda count: 48 * count),
    "shared_in_layers": st.none() | st.integers(1, 9).map(lambda count: 48 * count),
    "shared_experts_and_width": st.none() | st.integers(1, 9).map(lambda count: 48 * count),
    "same_in_layers": SIZES,
    "chunked_or_rotated": FLAGS,
    "llama4_chunks": st.sampled_from([(False,) * LAYERS, PERIOD]),
    "llama4_rotated": st.just(PERIOD),
    "experts_every": every(),
    "experts_numbered_or_every": FLAGS,
    "unless_switched_off": st.none() | SIZES,
    "llama4_qk_norm": st.just("plain"),
    "divided_by_norm": st.just(True),
    "experts_from": stepped(),
    "experts_between": stepped(),
    "experts_listed_or_from": FLAGS,
    "named_scaling": st.sampled_from(["linear", "yarn", "longrope"]),
    "stretched_scaling": st.sampled_from(["none", "linear", "dynamic", "llama3", "yarn"]),
    "stretched_base": FACTORS,
    "long_mscale": st.none() | st.floats(1.5, 9),
    "share_or_rotary_dim": st.integers(1, 16),
    "rotary_dim_and_share": st.integers(1, 16),
    "mup_embedding": st.sampled_from([1.0, 96**0.5]),
    "unit_mscale": st.just(1.0),
    "alike_mscale": st.just(0.5),
    "tenfold": FACTORS,
    "groups_if_limited": SIZES,
    "latent_size": SIZES,
    "one_shared_head": st.just(4),
    "latent_size_of_keys": SIZES,
    "layers_with_shared_head": FLAGS,
    "linear_layers_by_number": FLAGS,
    "without_rotated": SIZES,
    "over_hidden_size": SIZES.map(lambda base: base / 96),
    "over_root_of_layers": FACTORS,
    "paired_mscale": FACTORS,
    "layers_before_predicted": SIZES,
    "outside_table": SIZES,
    "said_twice": SIZES,
    "window_if_switched": st.none() | SIZES,
    "falcon_block": st.sampled_from(["pre", "parallel", "parallel_shared"]),
    "falcon_kv_heads": SIZES,
    "negated": st.booleans(),
    "opt_final_norm": st.just(False),
    "multi_query": st.sampled_from([1, VALUES["n_heads"]]),
    "heads_of_layers": SIZES,
    "adjusted_width": SIZES,
    "layers_of_attention": FLAGS,
    "layers_with_heads": FLAGS,
    "linear_layers_or_period": FLAGS,
    "recurrent_layers_or_period": FLAGS,
    "square_state": st.just(16),
    "head_width": st.sampled_from([16, 32, 160]),
    "width_of_heads": SIZES,
    "inner_width": SIZES,
    "step_rank": SIZES,
    "mamba_layers": FLAGS,
    "offset_and_period": offset(),
    "offset_and_period_of_experts": offset(),
    "layers_by_number": FLAGS,
    "layers_with_width": FLAGS,
    "attention_in_pattern": st.just(VALUES["attention_layers"]),
    "mlp_in_pattern": st.just(VALUES["mlp_layers"]),
    "attention_beside_experts": st.just(VALUES["attention_layers"]),
    "mlp_or_experts_in_pattern": st.just(VALUES["mlp_layers"]),
    "experts_in_pattern": st.just(VALUES["expert_layers"]),
    "layers_with_experts": FLAGS,
    "widths_of_layers": SIZES,
    "no_layer": st.just((False,) * 6),
    "width_of_states": SIZES,
    "state_norm": st.sampled_from(["none", "before", "gated"]),
    "period": periodic(),
    "layer_types_or_period": FLAGS,
    "flags_or_period": FLAGS,
    "sparse_layers": FLAGS,
    "from_layer": st.integers(0, LAYERS).map(lambda n: tuple(i >= n for i in range(LAYERS))),
    "qwen2_moe_windows": FLAGS,
    "listed_or_period": FLAGS,
    "flags_of_windows": FLAGS,
    "exaone4_windows": FLAGS,
    "rotated_where_sliding": st.just(VALUES["sliding_layers"]),
    "qwen2_windows": FLAGS,
    "behind_first_if_windows": FLAGS,
    "windows_after_first": FLAGS,
    "behind_first": FLAGS,
    "layer_types_or_behind_first": FLAGS,
    "gpt_neo_windows": FLAGS,
    "gemma3_windows": periodic(),
    "smollm3_windows": FLAGS,
    "windows_but_in_last": FLAGS.map(lambda flags: (*flags[:-1], False)),
    "window_of_layers": SIZES,
    "dim_without_window": SIZES,
    "kv_heads_without_window": SIZES,
    "kv_heads_of_windows": SIZES,
    "kv_heads_of_others": SIZES,
    # Layers that share keys and values have none of their own.
    "keys_are_values": st.sampled_from([(True,) * 4, (True, True, False, True)]).map(
        lambda own: (*own, False, False)
    ),
    "shared_by_place": st.sampled_from([0, 3]),
    "first_width": SIZES,
    "listed_width": SIZES,
    "listed_heads": SIZES,
    "first_heads": SIZES,
    "shares_of_gates": SHARES,
    "deviations_of_gates": SHARES,
    "width_of_each": st.none(),
    "wider_where_shared": st.sampled_from([None, (40, 40, 40, 40, 80, 80)]),
    "share_of_pairs": st.integers(0, 8),
    "half_or_share_of_pairs": st.integers(0, 8),
    "attention_in_kinds": FLAGS.map(lambda more: tuple(map(max, more, WINDOWED))),
    "windows_in_kinds": FLAGS.map(lambda some: tuple(map(min, some, VALUES["attention_layers"]))),
    "factor_of_rotation": st.floats(1.5, 9.0),
    "patches_of_image": st.just(9),
    "layers_of_stages": st.just(6),
    "above_zero": st.booleans(),
    "labels_by_number": st.none() | LABELS.filter(lambda names: names != UNNAMED),
    "labels_in_order": st.none() | LABELS,
    "head_activation": st.sampled_from(["gelu", "gelu_tanh", "relu", "silu"]),
    "head_bias": st.booleans(),
    "gelu_of_heads": st.just("gelu"),
    "times_width": st.integers(1, 63).map(lambda times: 96 * times),
    "times_width_gated": st.integers(1, 63).map(lambda times: gated(96, times)),
}


NULLABLE = ("tokens_of_scores", "never_scored", "tokens_by_labels")
NULLABLE += ("zero_is_null", "unscaled_attention", "longrope_attention", "window_if_switched")
NULLABLE += ("two_dense_layers", "labels_by_number", "labels_in_order", "unless_switched_off")
NULLABLE += ("shared_experts", "shared_in_layers", "shared_experts_and_width")
NULLABLE += ("width_of_each", "wider_where_shared", "long_mscale")
NULLABLE += ("if_windows", "share_if_windows")


def test_every_codec_is_tested() -> None:
    assert FIELDS.keys() == CODECS.keys()


DEPTHS = {"gemma2_attention_scale": 46, "gemma3_attention_scale": 62}
"""Layers of the model in which a codec means something else."""


def undone(name: str, value: Any, values: dict[str, Any] = VALUES) -> Any:
    """Return a value once it was written, and read as its type."""
    raws = list(CODECS[name].write(value, values))
    assert len(raws) == len(CODECS[name].keys)
    if name == "factor_of_rotation":  # another field's key, without which nothing is scaled
        raws[0] = "proportional"
    if name == "divided_by_norm" and value:  # another field's key, the order of the norm
        raws[0] = 2.0
    if name.endswith("share_of_pairs"):
        raws[0] = "proportional"
    if name == "gemma3_windows" and any(value):  # another field's key, which it looks at
        raws[0] = VALUES["sliding_window"]
    if name == "tokens_by_labels" and value is not None:  # what is written with the tokenizer
        raws = [4, "", [str(token) for token in value], [str(token) for token in range(20)]]
    read = CODECS[name].read(raws, values)
    kind = CODECS[name].types[0]
    return TYPES[kind](read) if isinstance(value, tuple) else read


@pytest.mark.parametrize("name", sorted(CODECS))
@given(data=st.data())
def test_what_is_written_is_read(name: str, data: st.DataObject) -> None:
    value = data.draw(FIELDS[name])
    assert same(undone(name, value), value)


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(CODECS))
@given(data=st.data())
def test_values_of_other_codecs_are_written_or_refused(name: str, data: st.DataObject) -> None:
    alike = [other for other in CODECS if CODECS[other].types == CODECS[name].types]
    value = data.draw(st.sampled_from(alike).flatmap(FIELDS.__getitem__))
    assume(value is not None or name in NULLABLE)
    try:
        read = undone(name, value)
    except (Unspellable, Undefined):
        return
    if name == "keys_are_values":  # layers that share keys have no values, whatever flags say
        read, value = read[:4], value[:4]
    assert same(read, value)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_null_is_written_or_refused(name: str) -> None:
    """A recipe may say that any field is optional, which its codec need not know of."""
    slots = tuple((Source("key", f"key{i}"),) for i, _ in enumerate(CODECS[name].keys))
    with suppress(Unspellable, Undefined):
        encoded(Spelling(slots, name), None, VALUES)


@pytest.mark.parametrize(
    ("raws", "width"),
    [
        ((None, None, None, None, 12288), 8192),
        ((True, 1.0, 256, 6656, 1), 4608),
        ((True, 1.3, 5, None, 30), 30),
        ((False, 1.3, 5, 30, None), 30),
        ((True, 1.0, 256, "many", None), "many"),
    ],
)
def test_widths_as_transformers_adjusts_them(raws: tuple[Any, ...], width: Any) -> None:
    assert CODECS["adjusted_width"].read(raws, VALUES) == width


@pytest.mark.parametrize(
    ("said", "terms"),
    [
        (None, None),
        ([], None),
        ("", None),
        ("none", None),
        ("p2c|c2p", ("c2p", "p2c")),
        ("P2C", ("p2c",)),
        (["c2p", "c2p"], ("c2p",)),
    ],
)
def test_terms_of_distances(said: Any, terms: Any) -> None:
    assert CODECS["terms_of_distances"].read([said], VALUES) == terms


@pytest.mark.parametrize("said", ["p2p|c2p", ["p2p"], 3, ["c2p", 1], {"c2p": 1}])
def test_terms_that_are_none(said: Any) -> None:
    with pytest.raises(Undefined, match=r"is none of c2p, p2c|is not a list of terms"):
        CODECS["terms_of_distances"].read([said], VALUES)


def test_kinds_of_layers_by_their_heads_and_by_number() -> None:
    heads, layers = CODECS["heads_of_layers"], CODECS["layers_of_attention"]
    assert heads.read([[0, 4, 0, 4]], VALUES) == 4
    assert (heads.read([4], VALUES), heads.read([[0, 0]], VALUES)) == (4, None)
    with pytest.raises(Undefined, match="several numbers for layers"):
        heads.read([[2, 4]], VALUES)
    numbered = (False, True, False, False, True, False)
    assert layers.read([[1, 4], None], VALUES) == numbered
    assert layers.read([None, None], VALUES) is None
    assert layers.read([[0], ["conv", "mamba"]], VALUES) == [False, "mamba"]
    with pytest.raises(Undefined, match="not a list of numbers of layers"):
        layers.read([3, None], VALUES)


def test_layers_without_attention_by_their_kinds_and_by_a_period() -> None:
    linear, recurrent = CODECS["linear_layers_or_period"], CODECS["recurrent_layers_or_period"]
    thirds = (False, False, True) * 2
    assert linear.read([None, 3], VALUES) == recurrent.read([None, 3], VALUES) == thirds
    assert linear.read([["linear_attention", "full_attention"], 3], VALUES) == [False, True]
    assert recurrent.read([[True, False, 1], 3], VALUES) == [False, True, 1]
    mamba = CODECS["mamba_layers"]
    assert mamba.read([None, None], VALUES) == (False,) * 6
    assert mamba.read([None, ["mamba", "attention"]], VALUES) == [False, True]
    attention, mlp = CODECS["attention_in_pattern"], CODECS["mlp_in_pattern"]
    assert attention.read(["M*-", None], VALUES) == (False, True, False)
    assert mlp.read([None, ["mamba", "attention", "mlp"]], VALUES) == (False, False, True)
    assert mlp.read([None, None], VALUES) is None
    with pytest.raises(Undefined, match="the kinds of layers are both"):
        mlp.read(["M*-", ["mlp"]], VALUES)
    numbered = CODECS["layers_by_number"]
    assert numbered.read([None], VALUES) == (False,) * 6
    assert numbered.write((False, True, True), VALUES) == ([1, 2],)
    with pytest.raises(Unspellable):
        CODECS["no_layer"].write((False, True), VALUES)
    assert (linear.read([None, 0], VALUES), recurrent.read([7, 4], VALUES)) == (0, 7)


def test_layers_by_a_first_one_and_a_period() -> None:
    layers, experts = CODECS["offset_and_period"], CODECS["offset_and_period_of_experts"]
    assert layers.read([1, 3], VALUES) == experts.read([1, 3], VALUES) == (False, True, False) * 2
    assert layers.read([1, None], VALUES) is None
    assert layers.write((False,) * 6, VALUES) == (6, 7)
    assert layers.write((False, False, True, False, False, False), VALUES) == (2, 7)
    with pytest.raises(Undefined, match="3 is not below 3"):
        layers.read([3, 3], VALUES)
    with pytest.raises(Undefined, match="first of these layers is missing"):
        layers.read([None, 3], VALUES)
    with pytest.raises(Unspellable):
        layers.write((False, False, True, False, True, False), VALUES)
    alone = VALUES | {"n_experts": 1}
    assert experts.read([1, 3], alone) == (False,) * 6
    with pytest.raises(Unspellable):
        experts.write((True,) * 6, alone)


def test_rotated_elements_and_their_share_agree() -> None:
    rotated = CODECS["rotary_dim_and_share"]
    assert rotated.read([None, 0.5], VALUES) == rotated.read([8, 0.5], VALUES) == 8
    with pytest.raises(Undefined, match="4 rotated elements of a head, where its share says 8"):
        rotated.read([4, 0.5], VALUES)


def test_widths_of_states() -> None:
    square = CODECS["square_state"]
    assert (square.read([48], VALUES), square.read(["x"], VALUES)) == (8, "x")
    assert CODECS["width_of_heads"].read([48], VALUES) == 8
    heads = CODECS["head_width"]
    assert [heads.read([width, 3], VALUES) for width in (None, "auto", 7)] == [48, 48, 7]
    assert heads.read([None, None], VALUES) == 32
    with pytest.raises(Unspellable):
        heads.write(5, VALUES)
    states = CODECS["width_of_states"]
    assert [states.read(raws, VALUES) for raws in ([7, 2, 48], ["auto", 2, 48])] == [7, 8]
    assert states.read([None, 3, None], VALUES) == 48
    with pytest.raises(Undefined, match="no multiple of 6 heads"):
        square.read([7], VALUES)
    inner, rank = CODECS["inner_width"], CODECS["step_rank"]
    widths = [inner.read(raws, VALUES) for raws in ([7, 16], [None, 3], [None, None])]
    assert widths == [7, 288, 192]
    assert [inner.write(width, VALUES) for width in (288, 7)] == [(288, 3), (7, None)]
    assert [rank.read([raw], VALUES) for raw in (None, "auto", 7, "x")] == [6, 6, 7, "x"]
    assert rank.read([None], VALUES | {"hidden_size": 97}) == 7


def test_multipliers_of_minicpm3() -> None:
    depth, base = CODECS["over_root_of_layers"], CODECS["over_hidden_size"]
    assert depth.read((None,), VALUES) == base.read((None,), VALUES) == 1.0
    assert depth.read((1.4,), VALUES) == 1.4 / 6**0.5
    assert depth.write(1.4 / 6**0.5, VALUES) == (1.4,)
    assert base.read((24,), VALUES) == 0.25
    for codec, value in ((base, 0.37), (base, None), (depth, None)):
        with pytest.raises(Unspellable):
            codec.write(value, VALUES)


def test_latents() -> None:
    size = CODECS["latent_size"]
    assert size.read([5, 13, 5], VALUES) == size.read([5, None, None], VALUES) == 5
    assert size.read(["x", 13, 5], VALUES) == "x"
    for widths in ([12, 5], [13, 4]):
        with pytest.raises(Undefined, match="where a latent of 5 makes"):
            size.read([5, *widths], VALUES)
    heads = CODECS["one_shared_head"]
    assert [heads.read([count], VALUES) for count in (1, 3)] == [4, 3]
    with pytest.raises(Unspellable):
        heads.write(2, VALUES)
    with pytest.raises(Unspellable):
        CODECS["alike_mscale"].write(0.25, VALUES)
    groups = CODECS["groups_if_limited"]
    assert [groups.read([kind, 3], VALUES) for kind in ("greedy", "group_limited_greedy")] == [1, 3]
    assert groups.read([None, 3], VALUES) == 1
    with pytest.raises(Undefined, match="chosen by 'noaux_tc': greedy and"):
        groups.read(["noaux_tc", 3], VALUES)


@pytest.mark.parametrize(("heads", "raws"), [(1, (None, None, True)), (4, (None, None, False))])
def test_heads_of_the_older_falcon(heads: int, raws: tuple[bool | None, ...]) -> None:
    older = VALUES | {"block": "pre"}
    assert CODECS["falcon_kv_heads"].write(heads, older) == raws
    assert undone("falcon_kv_heads", heads, older) == heads
    with pytest.raises(Unspellable):
        CODECS["falcon_kv_heads"].write(2, older)


@pytest.mark.parametrize(("window", "every"), [(None, 3), (512, 1)])
def test_windows_without_layers_and_layers_without_windows(window: int | None, every: int) -> None:
    with pytest.raises(Undefined, match=r"a (pattern of windows|window), and no"):
        CODECS["gemma3_windows"].read([window, every], VALUES)


@pytest.mark.parametrize("dense", [0, True, "1"])
def test_layers_without_experts_are_a_list(dense: object) -> None:
    with pytest.raises(Undefined, match=f"{dense!r} is not a list of numbers of layers"):
        CODECS["sparse_layers"].read([dense, None], VALUES)


@pytest.mark.parametrize(("name", "layers"), DEPTHS.items())
@given(value=FACTORS | st.sampled_from([16**-0.5, 24**-0.5]), hidden=st.integers(1, 1 << 20))
def test_scales_of_scores_in_the_deepest_model(
    name: str, layers: int, value: float, hidden: int
) -> None:
    values = VALUES | {"n_layers": layers, "hidden_size": hidden}
    assert same(undone(name, value, values), value)


@pytest.mark.parametrize(("name", "layers"), DEPTHS.items())
def test_the_deepest_model_scales_scores_by_its_width(name: str, layers: int) -> None:
    values = VALUES | {"n_layers": layers}
    assert CODECS[name].read([None], values) == 24**-0.5
    assert CODECS[name].read([None], VALUES) == 16**-0.5
    with pytest.raises(Undefined, match=r"hidden_size = 97 is not a multiple of n_heads = 4"):
        CODECS[name].read([None], values | {"hidden_size": 97})


@pytest.mark.parametrize(
    ("codec", "raws"),
    [
        ("adjusted_width", (True, 1.0, 256, None, 10**400)),
        ("adjusted_width", (True, 1.0, 256, math.inf, None)),
        ("adjusted_width", (True, 1e308, 256, None, 10**10)),
        ("heads_of_layers", ([[1], [2]],)),
        ("layers_of_attention", (None, 5)),
        ("layers_of_attention", (None, "conv")),
        ("layers_of_attention", ("x", None)),
        ("layers_by_number", (5,)),
        ("attention_in_pattern", (5, None)),
        ("attention_in_pattern", ("M*?", None)),
        ("mlp_in_pattern", (None, ["mlp", 5])),
        ("mlp_in_pattern", ("ME*-", None)),
    ],
)
def test_what_no_layers_have(codec: str, raws: tuple[Any, ...]) -> None:
    with pytest.raises(Undefined):
        CODECS[codec].read(raws, {"n_layers": 3})


@pytest.mark.parametrize("name", ["behind_first", "layer_types_or_behind_first"])
def test_a_period_is_written_where_it_says_all(name: str) -> None:
    """Write the usual 3 where it means the same as another number, else the least."""
    written = {
        (False, True, True, False): 3,
        (False, True, True, True): 4,
        (False, True): 3,
        (False, False, False): 1,
    }
    for flags, every in written.items():
        found = CODECS[name].write(flags, VALUES | {"n_layers": len(flags)})
        assert [raw for raw in found if raw is not None] == [every]
    listed = CODECS[name].write((True, False), VALUES | {"n_layers": 2})
    assert isinstance(next(raw for raw in listed if raw is not None), list)
