"""Random configurations of families with activations or norms of their own, and of XGLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_families import SQUARED
from tests.data.random_options import FLAGS, Config, Draw, usual

XIELU = st.sampled_from(["xielu", "xielu", "relu2", "silu", "gelu", "gelu_pytorch_tanh", "relu"])


def _apertus(draw: Draw) -> Config:
    return usual(draw, hidden_act=XIELU, attention_bias=FLAGS)


def _bitnet(draw: Draw) -> Config:
    return usual(draw, explicit=False, hidden_act=SQUARED, attention_bias=FLAGS)


ACTIVATED: Mapping[str, Callable[[Draw], Config]] = {"apertus": _apertus, "bitnet": _bitnet}
ACTIVATED_GRANTED: Mapping[str, Config] = {
    "apertus": {"hidden_act": "xielu"},
}
