"""Codecs of activations, for several of which transformers has more than one name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxtool.recipe.codec_type import Codec, Raws, Unspellable
from maxtool.recipe.expressions import Undefined, Values
from maxtool.recipe.keys import short

Names = Mapping[str, str]

# ``ACT2FN`` of transformers' activations.py, and the name of each formula here, but of those that
# have weights. Of several names the first is written.
NAMES: Names = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    **{name: name for name in ("relu", "relu2", "relu6", "leaky_relu", "quick_gelu", "gelu_10")},
    **{name: name for name in ("tanh", "sigmoid", "hardswish", "mish", "laplace", "linear")},
    "sqrtsoftplus": "sqrtsoftplus",
}
# Models of GPT-2's time say the approximation by the hyperbolic tangent so.
OLDER: Names = {"gelu_new": "gelu_tanh", **NAMES}
# Transformers takes that approximation for Gemma's legacy word.
GEMMA: Names = {name: one for name, one in NAMES.items() if name != "gelu"} | {"gelu": "gelu_tanh"}
# Its numbers are weights, which other families do not have.
APERTUS: Names = {**NAMES, "xielu": "xielu"}
# The gate and the activation in one word.
NOMIC: Names = {**NAMES, "swiglu": "silu"}


def spelled(names: Names) -> Names:
    """The first name of each activation."""
    return {ours: theirs for theirs, ours in reversed([*names.items()])}


def named(said: Any, names: Names = NAMES) -> Any:  # noqa: ANN401 - the field's type decides
    """The name here of an activation in a configuration's words.

    Raises:
        Undefined: If it is none of them.
    """
    if isinstance(said, str) and said not in names:
        raise Undefined(f"{short(said)} is not one of {', '.join(sorted(names))}")
    return names[said] if isinstance(said, str) else said


def _codec(names: Names) -> Codec:
    spellings = spelled(names)

    def write(value: str, _: Values) -> Raws:
        if value not in spellings:
            raise Unspellable
        return (spellings[value],)

    return Codec(
        read=lambda raws, _: named(raws[0], names), write=write, types=("str",), keys=("str",)
    )


def _write_silu(value: str, _: Values) -> Raws:
    if value != "silu":
        raise Unspellable
    return ("gelu",)


ACTIVATION_CODECS: Mapping[str, Codec] = {
    "activation": _codec(NAMES),
    "older_activation": _codec(OLDER),
    "gemma_activation": _codec(GEMMA),
    "apertus_activation": _codec(APERTUS),
    "nomic_activation": _codec(NOMIC),
    # A gated MLP of DINOv2 has it; the key is then as in other models.
    "silu_whatever_is_said": Codec(
        read=lambda raws, _: None if raws[0] is None else "silu",
        write=_write_silu,
        types=("str",),
        keys=("str",),
    ),
}
