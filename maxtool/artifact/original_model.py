"""The original model, run by transformers: the only reading of a checkpoint that is not ours.

Nothing of a checkpoint is executed: a model whose code lies beside its weights is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np

from maxtool.artifact import original_dense, original_scores
from maxtool.artifact.contents import Contents, NamedGraph
from maxtool.errors import ConfigurationError, MachineLacks
from maxtool.runtime.loader.specs import BEHIND, CLASSIFY, EMBED
from maxtool.weights import Checkpoint

Array: TypeAlias = np.ndarray[Any, Any]

PACKAGES = ("torch", "transformers")
INSTALL = "pip install 'maxtool[transformers]'"
GENERATE = "generate"
CAUSAL = "AutoModelForCausalLM"
# Classes of models that write texts, each with the table of configurations that it knows.
WRITERS = {
    CAUSAL: "MODEL_FOR_CAUSAL_LM_MAPPING",
    "AutoModelForImageTextToText": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "AutoModelForMultimodalLM": "MODEL_FOR_MULTIMODAL_LM_MAPPING",
}
# Of these transformers counts the positions of every call from 0 unless it is told them.
UNCOUNTED = ("bamba",)
# Of these it bounds steps by what they were drawn from, and not as the published code does.
BOUNDED = ("nemotron_h",)
# Of these its classes leave out a pooler that a checkpoint has, unless they are told not to.
POOLERLESS, POOLER = ("gte",), "pooler_output"
# Of these its classes of the whole leave out what scales logits, which published code did not.
UNSCALED = ("aya_vision", "cohere2_vision", "granite_speech", "granite_speech_plus")
# A window of which transformers' cache keeps every key, where it means to keep none: texts are read
# from the beginning each time.
REREAD = 1
LEAST_NORM = 1e-12
"""The length below which a vector is not scaled to length 1."""


class OriginalModel:
    """The functions of an artifact, computed by transformers in float32 on the CPU."""

    def __init__(self, contents: Contents, checkpoint: Checkpoint) -> None:
        self._functions = {function.name: function for function in contents.functions}
        self._facts = contents.facts
        writes = contents.identity["task"] == GENERATE
        maker = writer_of(checkpoint) if writes else "AutoModel"
        # The other implementations of experts want even sizes.
        options: dict[str, Any] = {"experts_implementation": "eager"}
        if (checkpoint.config or {}).get("model_type") in POOLERLESS:
            options["add_pooling_layer"] = any(
                POOLER in function.outputs for function in contents.functions
            )
        self._model = load_model(maker, checkpoint, **options)
        self._dense = (
            original_dense.layers_of(checkpoint.folder) if EMBED in self._functions else []
        )
        self._tokens = original_scores.tokens_of(checkpoint.folder)
        classes = "AutoModelForSequenceClassification" if self._tokens is None else CAUSAL
        self._classifier = load_model(classes, checkpoint) if CLASSIFY in self._functions else None

    def entry(self, name: str) -> NamedGraph:
        """A function by name."""
        return self._functions[name]

    def new_state(self, **_sizes: int) -> dict[str, Any]:
        """The memory of one text, which is transformers' own."""
        return {}

    def _named(self, name: str) -> Sequence[str]:
        """The outputs of a function."""
        return self._functions[name].outputs

    def run(
        self, name: str, inputs: Mapping[str, Array], state: dict[str, Any] | None = None
    ) -> dict[str, Array]:
        """The outputs of a function by name; an error where the model has none of that name."""
        if "slot" in inputs and state is not None:
            return self._run_slots(name, inputs, state)
        if name == CLASSIFY:
            return {"logits": self._scores(inputs)}
        taken = {key: value for key, value in inputs.items() if key != "position"}
        results = self._run(taken, state)
        if name == EMBED:
            return {"embeddings": self._pooled(results["last_hidden_state"], inputs)}
        if missing := [output for output in self._named(name) if output not in results]:
            what = f"the original model gives no {' or '.join(missing)}: it gives"
            raise ConfigurationError(f"{what} {', '.join(results)}", hint="try --check graph")
        return (
            {key: value[:, -1] for key, value in results.items()} if state is not None else results
        )

    def _run_slots(
        self, name: str, inputs: Mapping[str, Array], states: dict[str, Any]
    ) -> dict[str, Array]:
        """The outputs for rows that are texts of their own, each with its memory."""
        rows = [
            self.run(name, {"input_ids": ids[None]}, states.setdefault(f"slot {slot}", {}))
            for slot, ids in zip(inputs["slot"], inputs["input_ids"], strict=True)
        ]
        return {key: np.concatenate([row[key] for row in rows]) for key in self._named(name)}

    def _run(self, inputs: Mapping[str, Array], state: dict[str, Any] | None) -> dict[str, Array]:
        import torch

        if state is not None and window_of(self._model) == REREAD:
            return self._run({**inputs, "input_ids": _whole_text(inputs, state)}, None)
        name = cache_name(self._model)
        cached = {name: None, **(state or {}), "use_cache": True}
        options = {} if state is None else cached
        with torch.inference_mode():
            tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
            options |= positions(self._model, cached[name], inputs["input_ids"].shape[1])
            outputs = self._model(**tensors, **options)
        if state is not None:
            state[name] = outputs[name]
        pairs = outputs.items()
        return {name: value.numpy() for name, value in pairs if isinstance(value, torch.Tensor)}

    def _scores(self, inputs: Mapping[str, Array]) -> Array:
        """The logits of labels, or scores, for each text."""

        def logits(given: Mapping[str, Array]) -> Array:
            return call_model(self._classifier, given)["logits"]

        by_last = self._facts.get("padding") == BEHIND
        return original_scores.scored(logits, inputs, self._tokens) if by_last else logits(inputs)

    def _pooled(self, tokens: Array, inputs: Mapping[str, Array]) -> Array:
        """A vector ``[batch, features]`` of the tokens' vectors, as the options say."""
        mask = inputs["attention_mask"][..., None].astype(bool)
        vectors = POOLINGS[str(self._facts["pooling"])](tokens.astype(np.float64), mask)
        vectors = original_dense.applied(self._dense, vectors) if self._dense else vectors
        return of_length_1(vectors) if self._facts["normalize"] else vectors


def writer_of(checkpoint: Checkpoint) -> str:
    """Name the class of transformers for a model that writes texts; of several parts or of one."""
    import transformers

    config = _loaded(transformers.AutoConfig, checkpoint)
    mappings = ((name, getattr(transformers, mapping, {})) for name, mapping in WRITERS.items())
    return next((name for name, mapping in mappings if type(config) in mapping), CAUSAL)


def of_length_1(vectors: Array) -> Array:
    """The vectors in float64, scaled to length 1."""
    wide = vectors.astype(np.float64)
    scaled: Array = wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), LEAST_NORM)
    return scaled


def cache_name(model: Any) -> str:  # noqa: ANN401 - of transformers, which has no types
    """The name of what a model keeps of a text, in its inputs and its outputs."""
    parameters = inspect.signature(model.forward).parameters
    return "cache_params" if "cache_params" in parameters else "past_key_values"


def window_of(model: Any) -> int | None:  # noqa: ANN401 - likewise
    """The tokens that sliding layers see, if the model has such layers."""
    window: int | None = getattr(model.config.get_text_config(), "sliding_window", None)
    return window


def _whole_text(inputs: Mapping[str, Array], state: dict[str, Any]) -> Array:
    """The tokens of a text up to those of a call, kept in what is remembered of it."""
    before = state.get("text", inputs["input_ids"][:, :0])
    text: Array = np.concatenate([before, inputs["input_ids"]], axis=1)
    state["text"] = text
    return text


def positions(model: Any, cache: Any, length: int) -> dict[str, Any]:  # noqa: ANN401 - likewise
    """The positions of ``length`` tokens, for a model that does not count them."""
    import torch

    if model.config.model_type not in UNCOUNTED:
        return {}
    first = 0 if cache is None else cache.get_seq_length()
    return {"position_ids": torch.arange(first, first + length)[None]}


POOLINGS: Mapping[str, Callable[[Array, Array], Array]] = {
    "cls": lambda tokens, _: tokens[:, 0],
    "max": lambda tokens, mask: np.where(mask, tokens, -np.inf).max(1),
    "last": lambda tokens, mask: tokens[np.arange(len(mask)), mask[..., 0].sum(1) - 1],
    "mean": lambda tokens, mask: np.where(mask, tokens, 0).sum(1) / np.maximum(mask.sum(1), 1),
}


def require(checkpoint: Checkpoint) -> None:
    """Require that transformers is here and knows the kind of model, before any work is done."""
    if checkpoint.format == "gguf":
        what = "--check transformers runs Hugging Face checkpoints, and this is a GGUF file"
        hint = "check the checkpoint that it was made from, or try --check graph"
        raise ConfigurationError(what, file=checkpoint.path, hint=hint)
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        what = f"--check transformers needs {' and '.join(missing)}"
        raise MachineLacks(f"{what}, which this Python lacks", hint=INSTALL)
    import transformers

    _loaded(transformers.AutoConfig, checkpoint)


def load_model(name: str, checkpoint: Checkpoint, **options: Any) -> Any:  # noqa: ANN401 - its own
    """A class of transformers by name, loaded in float32 and ready to be called."""
    import torch
    import transformers

    model = _loaded(getattr(transformers, name), checkpoint, dtype=torch.float32, **options).eval()
    if model.config.model_type in BOUNDED:
        _take_bounds(model)
    if model.config.model_type in UNSCALED:
        _scale_logits(model)
    return model


def _take_bounds(model: Any) -> None:  # noqa: ANN401 - of transformers, which has no types
    """Give the steps of state spaces the bounds that the configuration says."""
    for module in model.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = tuple(model.config.time_step_limit)


def _scale_logits(model: Any) -> None:  # noqa: ANN401 - of transformers, which has no types
    """Scale what the head gives as the class of the language model by itself does."""
    text = model.config.get_text_config()
    factor = getattr(text, "logit_scale", 1.0) / getattr(text, "logits_scaling", 1.0)
    head = model.get_output_embeddings()
    head.register_forward_hook(lambda _module, _inputs, logits: logits * factor)


def call_model(model: Any, inputs: Mapping[str, Array], **options: Any) -> dict[str, Array]:  # noqa: ANN401
    """Return the outputs that are tensors, by transformers' names for them."""
    import torch

    found = outputs_of(model, inputs, **options).items()
    return {name: value.numpy() for name, value in found if isinstance(value, torch.Tensor)}


def outputs_of(model: Any, inputs: Mapping[str, Array], **options: Any) -> Any:  # noqa: ANN401
    """Return the outputs as transformers gives them."""
    import torch

    with torch.inference_mode():
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        return model(**tensors, **options)


def _loaded(maker: Any, checkpoint: Checkpoint, **options: Any) -> Any:  # noqa: ANN401 - its own
    """Load a class of transformers without a download, a stranger's code, or words on stderr."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options |= {"local_files_only": True, "trust_remote_code": False}
    try:
        return maker.from_pretrained(checkpoint.folder, **options)
    except Exception as error:
        what = f"transformers cannot read this checkpoint: {error!s:.300}"
        raise ConfigurationError(what, file=checkpoint.path, hint="try --check graph") from error
