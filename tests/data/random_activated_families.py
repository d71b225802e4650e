"""Random configurations of families with activations or norms of their own, and of XGLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hypothesis import strategies as st

from tests.data.random_options import FLAGS, LONGEST, SQUARED, Config, Draw, usual

XIELU = st.sampled_from(["xielu", "xielu", "relu2", "silu", "gelu", "gelu_pytorch_tanh", "relu"])


def _apertus(draw: Draw) -> Config:
    return usual(draw, hidden_act=XIELU, attention_bias=FLAGS)


def _bitnet(draw: Draw) -> Config:
    return usual(draw, explicit=False, hidden_act=SQUARED, attention_bias=FLAGS)


def _xglm(draw: Draw) -> Config:
    count = draw(st.integers(1, 4))
    return {
        "vocab_size": draw(st.integers(11, 71)),
        "max_position_embeddings": draw(st.integers(LONGEST, 128)),
        "d_model": count * draw(st.integers(4, 9)),
        "ffn_dim": draw(st.integers(3, 37)),
        "num_layers": draw(st.integers(1, 4)),
        "attention_heads": count,
        "activation_function": draw(st.sampled_from(["gelu", "gelu_new", "relu", "silu"])),
        "scale_embedding": draw(FLAGS),
        "tie_word_embeddings": draw(FLAGS),
        "pad_token_id": draw(st.none() | st.integers(0, 9)),
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


ACTIVATED: Mapping[str, Callable[[Draw], Config]] = {
    "apertus": _apertus,
    "bitnet": _bitnet,
    "xglm": _xglm,
}
ACTIVATED_GRANTED: Mapping[str, Config] = {
    "apertus": {"hidden_act": "xielu"},
}
