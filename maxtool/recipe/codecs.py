"""Codecs: how the values of keys become a field's value, and a field's value those of keys.

A recipe names one where a field is not simply what a key says: ``codec = "reciprocal"``. Each is a
pair of functions, ``read`` and ``write``, of which one undoes the other. Both see the values of a
way's keys in order, None for a key that is missing or null, and the fields known so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maxtool.recipe.activation_codecs import ACTIVATION_CODECS
from maxtool.recipe.chunk_codecs import CHUNK_CODECS
from maxtool.recipe.codec_type import NUMBER, Codec, Raws, Unspellable
from maxtool.recipe.cohere_codecs import COHERE_CODECS
from maxtool.recipe.dense_codecs import DENSE_CODECS
from maxtool.recipe.distance_codecs import DISTANCE_CODECS
from maxtool.recipe.expert_codecs import EXPERT_CODECS
from maxtool.recipe.expressions import Expression, Undefined, Values, evaluate, same
from maxtool.recipe.field_codecs import FIELD_CODECS
from maxtool.recipe.fieldtypes import NEEDS, TYPES
from maxtool.recipe.gate_codecs import GATE_CODECS
from maxtool.recipe.index_codecs import INDEX_CODECS
from maxtool.recipe.label_codecs import LABEL_CODECS
from maxtool.recipe.latent_codecs import LATENT_CODECS
from maxtool.recipe.layer_codecs import LAYER_CODECS
from maxtool.recipe.mimo_codecs import MIMO_CODECS
from maxtool.recipe.mixer_codecs import MIXER_CODECS
from maxtool.recipe.rope_codecs import ROPE_CODECS
from maxtool.recipe.schema import Spelling
from maxtool.recipe.score_codecs import SCORE_CODECS
from maxtool.recipe.shape_codecs import SHAPE_CODECS
from maxtool.recipe.sparsity_codecs import SPARSITY_CODECS
from maxtool.recipe.state_codecs import STATE_CODECS
from maxtool.recipe.t5_codecs import T5_CODECS
from maxtool.recipe.vision_codecs import VISION_CODECS
from maxtool.recipe.window_codecs import WINDOW_CODECS

CODECS: Mapping[str, Codec] = {
    **ACTIVATION_CODECS,
    **FIELD_CODECS,
    **GATE_CODECS,
    **INDEX_CODECS,
    **LABEL_CODECS,
    **LATENT_CODECS,
    **LAYER_CODECS,
    **MIMO_CODECS,
    **MIXER_CODECS,
    **STATE_CODECS,
    **CHUNK_CODECS,
    **COHERE_CODECS,
    **DENSE_CODECS,
    **DISTANCE_CODECS,
    **EXPERT_CODECS,
    **ROPE_CODECS,
    **SCORE_CODECS,
    **T5_CODECS,
    **SHAPE_CODECS,
    **SPARSITY_CODECS,
    **VISION_CODECS,
    **WINDOW_CODECS,
}


def decoded(way: Spelling, raws: Raws, values: Values, *, absent: bool) -> Any:  # noqa: ANN401
    """The field's value by a way's codec; None where its keys say nothing. Raises Undefined.

    ``absent`` says that the last key is missing, and not null: its default then stands for it.
    """
    if name := _null_need(way, values):
        raise Undefined(f"{way.codec} needs {name}, which is null")
    if absent and way.default is not None and raws:
        last = evaluate(way.default, values)
        key_type = CODECS[way.codec].keys[-1]
        if key_type != "any" and last is not None and TYPES[key_type](last) is None:
            raise Undefined(f"{last!r} is not {NEEDS[key_type]}, which {way.codec} needs")
        raws = [*raws[:-1], last]
    return CODECS[way.codec].read(raws, values)


def _null_need(way: Spelling, values: Values) -> str | None:
    """A field that a way's codec needs, and that is null."""
    needs = CODECS[way.codec].needs.items()
    return next((name for name, what in needs if what == NUMBER and values[name] is None), None)


def encoded(way: Spelling, value: Any, values: Values) -> dict[str, Any]:  # noqa: ANN401
    """The keys that say a field's value by a way's codec; Unspellable if they cannot.

    Of flags, the value is not null.
    """
    if _null_need(way, values):
        raise Unspellable
    # Flags that are all set stand for null, whose absence a file could mean otherwise.
    full = isinstance(value, tuple) and all(value)
    if way.omit is not None and not full and same(implied(way, way.omit, values), value):
        return {}
    if any(source.kind == "rows" for source in way.sources):
        return {}  # a tensor says it
    if not way.keys:
        if not same(implied(way, way.default, values), value):
            raise Unspellable
        return {}
    keys: dict[str, Any] = {}
    for slot, raw in zip(way.slots, _written(way.codec, value, values), strict=True):
        if raw is not None and not slot:
            raise Unspellable
        keys |= {} if raw is None else {slot[0].text: raw}
    return keys | dict.fromkeys(way.also if keys else (), next(iter(keys.values()), None))


def _written(codec: str, value: Any, values: Values) -> Raws:  # noqa: ANN401
    """The values of keys that a codec writes; null, where it knows none, has no spelling."""
    try:
        return [*CODECS[codec].write(value, values)]
    except TypeError:
        if value is not None:
            raise
        raise Unspellable from None


def implied(way: Spelling, last: Expression | None, values: Values) -> Any:  # noqa: ANN401
    """The value of a way's field when no key is there but the last, which says ``last``."""
    if not way.codec:
        return None if last is None else evaluate(last, values)
    raws = [None] * len(way.slots)
    return decoded(replace(way, default=last), raws, values, absent=True)
