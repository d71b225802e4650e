"""Compiled encoders beside transformers, on random configurations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool import artifact
from maxtool.runtime import loader
from tests.artifact.measure import BOUND, Array, error

pytestmark = [pytest.mark.peers, pytest.mark.slow]

KINDS = ("bert", "electra", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "modernbert")
KINDS += ("mpnet", "deberta-v2", "gte")
OUTPUTS = ("last_hidden_state", "pooler_output")
# The keys in which DistilBERT says the same.
DISTIL = {
    "hidden_size": "dim",
    "intermediate_size": "hidden_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "hidden_act": "activation",
}


@st.composite
def relative(draw: st.DrawFn) -> dict[str, Any]:
    """Options of DeBERTa."""
    terms = st.lists(st.sampled_from(["c2p", "p2c"]), max_size=2, unique=True)
    options: dict[str, st.SearchStrategy[Any]] = {
        "type_vocab_size": st.integers(0, 3),
        "relative_attention": st.sampled_from([True, True, True, False]),
        "pos_att_type": st.one_of(terms, st.sampled_from(["c2p|p2c", None])),
        "position_buckets": st.sampled_from([-1, 3, 8]),
        "max_relative_positions": st.sampled_from([-1, 6, 20]),
        "share_att_key": st.booleans(),
        "norm_rel_ebd": st.sampled_from(["none", "layer_norm"]),
        "position_biased_input": st.booleans(),
        "conv_kernel_size": st.sampled_from([0, 1, 3, 5]),
        "conv_act": st.sampled_from(["tanh", "gelu", "relu"]),
        "embedding_size": st.sampled_from([3, 8]),
    }
    return {key: draw(strategy) for key, strategy in options.items()}


@st.composite
def configurations(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    heads, dim = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    acts = ["gelu", "gelu_new", "relu", "silu"]
    sizes = {
        "vocab_size": draw(st.integers(7, 150)),
        "hidden_size": heads * dim,
        "intermediate_size": draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "max_position_embeddings": draw(st.integers(8, 40)),
    }
    if kind == "distilbert":
        sizes["hidden_act"] = draw(st.sampled_from(["gelu", "relu"]))
        return {DISTIL.get(key, key): value for key, value in sizes.items()}
    sizes["type_vocab_size"] = draw(st.integers(1, 3))
    sizes["layer_norm_eps"] = draw(st.sampled_from([1e-12, 1e-5]))
    if kind == "gte":
        table = draw(
            st.sampled_from([{"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}])
        )
        act = draw(st.sampled_from(acts))
        sizes |= {"hidden_size": 2 * heads * dim, "type_vocab_size": draw(st.integers(0, 3))}
        return sizes | {"rope_parameters": {**table, "rope_theta": 1000.0}, "hidden_act": act}
    if kind == "nomic_bert":
        theta = draw(st.sampled_from([1000.0, 10000.0]))
        rope = {"rope_type": "default", "rope_theta": theta}
        return sizes | {"hidden_size": 2 * heads * dim, "rope_parameters": rope}
    if kind == "modernbert":
        sizes.pop("type_vocab_size")
        bases = draw(st.permutations([1000.0, 10000.0]))
        tables = {
            name: {"rope_type": "default", "rope_theta": base}
            for name, base in zip(("full_attention", "sliding_attention"), bases, strict=True)
        }
        special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)
        return {
            **sizes,
            **special,
            "pad_token_id": 0,
            "hidden_size": 2 * heads * dim,
            "norm_eps": sizes.pop("layer_norm_eps"),
            "hidden_activation": draw(st.sampled_from(acts)),
            "local_attention": draw(st.integers(1, 30)),
            "global_attn_every_n_layers": draw(st.integers(1, 3)),
            "norm_bias": draw(st.booleans()),
            "rope_parameters": tables,
        }
    if kind == "deberta-v2":
        return sizes | draw(relative()) | {"hidden_act": draw(st.sampled_from(acts))}
    if kind == "mpnet":
        sizes.pop("type_vocab_size")
        sizes["relative_attention_num_buckets"] = draw(st.integers(32, 40))
    elif kind == "electra":
        sizes["embedding_size"] = draw(st.sampled_from([heads * dim, 3, 8]))
    elif kind != "bert":
        sizes["pad_token_id"] = draw(st.integers(0, 3))
    return sizes | {"hidden_act": draw(st.sampled_from(acts))}


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    """The package, on one thread, with warnings of transformers left alone."""
    result = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads = result.get_num_threads()
    result.set_num_threads(1)
    yield result
    result.set_num_threads(threads)


def saved(torch: Any, kind: str, config: dict[str, Any], folder: Path) -> Any:
    """A random model, written to a folder as ``save_pretrained`` does."""
    import transformers

    built = transformers.AutoConfig.for_model(kind, **config)
    model = transformers.AutoModel.from_config(built, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.5 if parameter.dim() == 1 else 1.2 / parameter.shape[-1] ** 0.5
            parameter.normal_(0.0, spread)
    model.save_pretrained(folder)
    return model


def drawn(data: st.DataObject, model: Any) -> dict[str, Array]:
    """Token ids of several lengths, padded as a tokenizer pads them."""
    config = model.config
    pad = config.pad_token_id or 0
    longest = config.max_position_embeddings
    longest -= pad + 1 if config.model_type in ("roberta", "xlm-roberta", "mpnet") else 0
    lengths = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=3), label="lengths")
    random = np.random.default_rng(data.draw(st.integers(0, 99), label="ids"))
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask == 1, random.integers(0, config.vocab_size, mask.shape), pad)
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = random.integers(0, config.type_vocab_size, mask.shape)
    return inputs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_the_same_as_transformers(torch: Any, kind: str, data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 99), label="seed"))
    with tempfile.TemporaryDirectory() as scratch:
        folder, output = Path(scratch, "model"), Path(scratch, "artifact")
        config = data.draw(configurations(kind), label="configuration")
        model = saved(torch, kind, config, folder)
        inputs = drawn(data, model)
        with torch.no_grad():
            given_ = {name: torch.from_numpy(array) for name, array in inputs.items()}
            expected = model(**given_)
        artifact.make(artifact.prepare(artifact.Request(folder, output)))
        actual = loader.load(output)(**inputs)
        # Padding that is far from all tokens sees nothing, which transformers makes a mean of all.
        seen = inputs["attention_mask"] == 1 if kind == "modernbert" else ...
        for name in OUTPUTS:
            if (wanted := expected.get(name)) is not None:
                assert error(actual[name][seen], wanted.numpy()[seen]) <= BOUND
