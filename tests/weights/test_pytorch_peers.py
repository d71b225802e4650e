"""PyTorch checkpoints beside torch itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maxtool.dtype import DType
from maxtool.weights import open_checkpoint

pytestmark = pytest.mark.peers
PROTOCOLS = (2, 3, 4, 5)


def tensors(torch: Any, value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor of a value by its dotted name."""
    if isinstance(value, torch.Tensor):
        yield name, value
    items = value.items() if isinstance(value, Mapping) else ()
    items = enumerate(value) if isinstance(value, list | tuple) else items
    for key, item in items:
        yield from tensors(torch, item, f"{name}.{key}" if name else str(key))


def check(torch: Any, path: Path) -> int:
    """Compare every tensor of a file with what torch loads; returns how many there are."""
    # Written here; weights_only knows protocol 2 alone.
    loaded = torch.load(path, weights_only=False, map_location="cpu")
    expected = dict(tensors(torch, loaded))
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == list(expected)
    for name, tensor in expected.items():
        weight = checkpoint.read(name)
        assert weight.dtype is DType(str(tensor.dtype).removeprefix("torch."))
        assert weight.shape == tuple(tensor.shape)
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        assert weight.data.tobytes() == raw.tobytes(), name
    return len(expected)


def strided(torch: Any, random: np.random.Generator, dtype: Any) -> Any:
    """A view of random bytes, sliced, transposed and expanded at random."""
    storage = torch.from_numpy(random.integers(0, 2, (6, 5, 4)).astype(np.uint8)).to(dtype)
    view = storage[int(random.integers(3)) :, :: int(random.integers(1, 3))]
    view = view.permute(*random.permutation(3).tolist())
    return view[..., :1].expand(*view.shape[:-1], 3) if random.integers(2) else view


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", [dtype.value for dtype in DType])
def test_views_of_every_type(tmp_path: Path, dtype: str, protocol: int) -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(protocol)
    content = {str(index): strided(torch, random, getattr(torch, dtype)) for index in range(20)}
    shared = content["3"]
    content["nested"] = {"tied": shared, "list": [shared[0], torch.nn.Parameter(torch.ones(2))]}
    torch.save(content, tmp_path / "x.pt", pickle_protocol=protocol)
    assert check(torch, tmp_path / "x.pt") == 23


def test_models_and_optimizers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.LSTM(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model[1](model[0](torch.randn(5, 3))).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 80])
    content = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": 3,
    }
    torch.save(content, tmp_path / "x.pt")
    assert check(torch, tmp_path / "x.pt") > 20
    assert open_checkpoint(tmp_path / "x.pt").metadata["epoch"] == 3


def test_the_recorded_files() -> None:
    torch = pytest.importorskip("torch")
    for file in ("kinds.pt", "protocol5.pt"):
        check(torch, Path(__file__).resolve().parents[1] / "data" / "pytorch" / file)
