"""How the files of each architecture are read: a row for each ``general.architecture``.

What llama.cpp takes for a key that is absent is taken here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from maxtool.parity.decoder.gguf.row import LAYER_EPS, Options, Row
from maxtool.parity.decoder.gguf.tensors import rows
from maxtool.parity.decoder.settings import Sizes
from maxtool.parity.raw_config import Reader
from maxtool.weights.checkpoint import Checkpoint


def _gemma(layers_of_27b: int) -> Callable[[Reader, Sizes, Checkpoint], Options]:
    """Scales of Gemma: where no key says it, that of scores is told by the number of layers."""

    def more(read: Reader, sizes: Sizes, _: Checkpoint) -> Options:
        large = sizes.layers == layers_of_27b
        divisor = sizes.hidden // sizes.heads if large else sizes.head_dim
        scale = read.number("attention.scale", divisor**-0.5)
        return {"embed_scale": sizes.hidden**0.5, "scale": scale}

    return more


def _gemma2(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:
    return _gemma(46)(read, sizes, checkpoint) | {
        "attention_cap": read.number("attn_logit_softcapping", 50.0),
        "logits_cap": read.number("final_logit_softcapping", 30.0),
    }


def _gemma3(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:
    cap = read.optional_number("final_logit_softcapping")
    return _gemma(62)(read, sizes, checkpoint) | {"logits_cap": cap}


def _granite(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    read.only("rope.scaling.finetuned", True)
    return {
        "embed_scale": read.number("embedding_scale", 1.0),
        "residual_scale": read.number("residual_scale", 1.0),
        "logits_scale": 1 / read.number("logit_scale", 1.0),
    }


def _gpt2(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    return {"positions": rows("position_embd.weight", checkpoint)}


def _gpt_neox(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    parallel = read.flag("use_parallel_residual", default=True)
    return {"block": "parallel" if parallel else "pre"}


def _falcon(read: Reader, sizes: Sizes, checkpoint: Checkpoint) -> Options:  # noqa: ARG001
    two = "blk.0.attn_norm_2.weight" in checkpoint.tensors
    return {"block": "parallel" if two else "parallel_shared"}


PAIRS: Options = {"pairs": True}
GEMMA: Options = {"block": "sandwich", "activation": "gelu_pytorch_tanh"}
PLAIN: Options = {"norm": "layer", "gated": False}

ROWS: Mapping[str, Row] = {
    "llama": Row(PAIRS),
    "qwen2": Row(),
    "qwen3": Row({"qk_norm": "head"}),
    "qwen3moe": Row({"qk_norm": "head"}),
    "gemma2": Row(GEMMA, pattern=2, window=4096, more=_gemma2),
    "gemma3": Row(GEMMA | {"qk_norm": "head"}, pattern=6, local_rope=True, more=_gemma3),
    "phi3": Row(),
    "gpt2": Row(PLAIN | {"activation": "gelu_new"}, LAYER_EPS, rope=False, more=_gpt2),
    "gptneox": Row(PLAIN | {"activation": "gelu"}, LAYER_EPS, more=_gpt_neox),
    "starcoder2": Row(PLAIN | {"activation": "gelu_pytorch_tanh"}, LAYER_EPS),
    "olmo2": Row({"block": "post", "qk_norm": "full"}),
    "granite": Row(PAIRS, more=_granite),
    "smollm3": Row(PAIRS, without_rope=4),
    "falcon": Row(PLAIN | {"activation": "gelu"}, LAYER_EPS, more=_falcon),
}
"""How each ``general.architecture`` is read."""
