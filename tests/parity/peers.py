"""Random models of transformers, saved as folders, and what they compute in float64."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxtool.artifact.original_model import cache_name, positions
from maxtool.weights.checkpoint import Checkpoint, open_checkpoint
from tests.data.older_configs import published
from tests.data.random_families import type_of


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    """The package, on one thread, with warnings of transformers left alone."""
    found = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    threads = found.get_num_threads()
    found.set_num_threads(1)
    yield found
    found.set_num_threads(threads)


# What transformers writes and cannot read: an infinity as a table.
UNREADABLE = ("time_step_limit",)


@contextlib.contextmanager
def saved(torch: Any, model_type: str, config: dict[str, Any], *, older: bool) -> Iterator[Path]:
    """A folder with a random model, as ``save_pretrained`` writes it."""
    import transformers

    built = transformers.AutoConfig.for_model(type_of(model_type), **config)
    model = transformers.AutoModelForCausalLM.from_config(built).to(torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name or ".ln_" in name else 0.0
            spread = 0.3 if parameter.dim() == 1 else 1.2 / parameter.shape[-1] ** 0.5
            parameter.normal_(0.0 if name.endswith("bias") else centre, spread)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model.save_pretrained(folder)
        written = json.loads((folder / "config.json").read_text())
        written = {key: value for key, value in written.items() if key not in UNREADABLE}
        written = published(written) if older else written
        (folder / "config.json").write_text(json.dumps(written))
        yield folder


def shaken(folder: Path) -> Checkpoint:
    """The folder with each weight moved by one unit in the last place, up or down."""
    file = folder / "shaken" / "model.safetensors"
    if not file.exists():
        file.parent.mkdir()
        ways = np.random.default_rng(0)
        ends = np.float32([-np.inf, np.inf])
        weights = load_file(folder / file.name).items()
        moved = {k: np.nextafter(v, ends[ways.integers(0, 2, v.shape)]) for k, v in weights}
        save_file(moved, file)
        shutil.copy(folder / "config.json", file.parent)
    return open_checkpoint(file.parent)


def load(torch: Any, folder: Path) -> Any:
    """The folder as transformers loads it, in float64: a scaling may remember lengths."""
    import transformers

    # The other implementations of experts know no float64.
    options = {"dtype": torch.float64, "experts_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    return model.to(torch.float64)  # routers that are made in float32, too


@contextlib.contextmanager
def all_double(torch: Any) -> Iterator[None]:
    """Norms and softmax, which models compute in float32 whatever their type, in float64 too.

    The rotary tables ask for ``torch.float``, and for float32 of what is not float64: they stay.
    """
    narrow = torch.Tensor.float

    def float_unless_double(self: Any) -> Any:
        return self if self.dtype is torch.float64 else narrow(self)

    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of the numbers that hide scores, in XGLM's attention
    try:
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(torch, "float32", torch.float64)
            patch.setattr(torch.Tensor, "float", float_unless_double)
            yield
    finally:
        torch.set_default_dtype(default)


def forward(torch: Any, model: Any, ids: np.ndarray) -> np.ndarray:
    with all_double(torch):
        return model(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()


def single(torch: Any, folder: Path, ids: np.ndarray) -> np.ndarray:
    """The folder's logits in float32, as transformers computes them."""
    import transformers

    # The other implementations of experts want even sizes.
    options = {"dtype": torch.float32, "experts_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()


def cached(torch: Any, model: Any, ids: np.ndarray, starts: list[int]) -> np.ndarray:
    """Logits after each call with a cache."""
    name, cache, logits = cache_name(model), None, []
    for start, stop in zip(starts, [*starts[1:], ids.shape[1]], strict=True):
        with all_double(torch):
            part = torch.from_numpy(ids[:, start:stop])
            told = positions(model, cache, part.shape[1])
            found = model(input_ids=part, **{name: cache}, use_cache=True, **told)
        cache = found[name]
        logits.append(found.logits[:, -1].numpy())
    return np.stack(logits, axis=1)
