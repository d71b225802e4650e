"""The stub of a GPU is built once for all tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
import stub_gpu


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not stub_gpu.compilers():
        pytest.skip("no C and C++ compiler, which the stub of a GPU needs")
    return stub_gpu.build(tmp_path_factory.mktemp("stubs") / "lib")


@pytest.fixture(scope="session")
def cuda_module(stubs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert stubs  # there are compilers
    return stub_gpu.build_module(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def cuda_artifact(tmp_path: Path, cuda_module: Path, ids: dict[str, list[int]]) -> Path:
    return stub_gpu.make(tmp_path / "model", cuda_module, ids, ["sm_80.cubin", "sm_90.cubin"])
