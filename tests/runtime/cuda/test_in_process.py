"""Modules and eager operations of Python on GPUs: all but nvrtc and the hardware."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import stub_gpu

# nvrtc is another compiler, and the machine code the library that the stub takes kernels from.
PROLOGUE = """
import os
from pathlib import Path
sys.path.insert(0, "tests/runtime")
sys.path.insert(0, "tests/runtime/cuda")
import stub_gpu
from maxtool.nn.module_v3 import Module
from maxtool.compiler.cuda import loading
from maxtool.compiler.cuda.device_code import DeviceCode
from maxtool.driver import CPU, Accelerator, accelerator_count
from maxtool.dtype import DType
from maxtool.graph import DeviceRef, Graph, Tensor, TensorType, executor, ops

F32 = DType.float32
FOLDER = Path(sys.argv[1])
compiled = []

def portable_code(source, archs):
    library = FOLDER / "kernels.so"
    stub_gpu.build_kernels(source, library)
    os.environ["STUB_KERNELS"] = str(library)
    made = DeviceCode(archs[0].replace("sm_", "compute_"), b"code")
    compiled.append(made.name)
    return made

def machine_code(ptx, archs):
    compiled.extend(archs)
    return [DeviceCode(arch, ptx.data) for arch in archs]

loading.portable_code, loading.machine_code = portable_code, machine_code
"""


@pytest.fixture
def run(stubs: Path, tmp_path: Path) -> Any:
    def run(code: str, gpus: str) -> Any:
        return stub_gpu.run(PROLOGUE + code, stub_gpu.environment(stubs, gpus=gpus), tmp_path)

    assert sys.platform == "linux"
    return run


@pytest.mark.long
def test_a_graph_on_two_gpus_and_the_host(run: Any) -> None:
    answer = run(
        """
def call(x):
    there = ops.exp(x.to(DeviceRef.GPU(0)))
    return ops.cos(ops.log(there.to(DeviceRef.GPU(1))).to(CPU())), there

x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
run = executor.find_executor().compile(Graph("main", call, [TensorType(F32, ["n", 3])]), {})
home, there = run(Tensor(x))
close = [np.allclose(home.to_numpy(), np.cos(x)), np.allclose(there.to_numpy(), np.exp(x))]
answer([close, str(there.device), there.__dlpack_device__(), compiled, accelerator_count()])
""",
        gpus="9.0 9.0",
    )
    assert answer == [[True, True], "gpu:0", [2, 0], ["compute_90", "sm_90"], 2]


@pytest.mark.slow
def test_a_module_moved_to_a_gpu(run: Any) -> None:
    answer = run(
        """
class Layer(Module):
    def __init__(self):
        self.weight = Tensor(np.arange(3, dtype=np.float32))

    def forward(self, x):
        return ops.pow(self.weight, x)

    def input_types(self):
        return [TensorType(F32, ["n", 3], self.device)]

layer = Layer().to(Accelerator())
x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
result = layer.compile(*layer.input_types())(x)
close = np.allclose(result.to_numpy(), np.arange(3) ** x)
answer([close, str(result.device), str(layer.weight.device)])
""",
        gpus="8.0",
    )
    assert answer == [True, "Accelerator(id=0)", "Accelerator(id=0)"]


@pytest.mark.slow
def test_gpus_that_differ_get_one_code_for_both(run: Any) -> None:
    answer = run(
        """
there = ops.exp(Tensor(np.zeros(3, np.float32)).to(Accelerator(1)))
answer([there.to_numpy().tolist(), compiled])
""",
        gpus="8.0 9.0",
    )
    assert answer == [[1.0, 1.0, 1.0], ["compute_80"]]


@pytest.mark.slow
def test_a_graph_that_computes_nothing(run: Any) -> None:
    answer = run(
        """
def moved(x):
    return x.to(DeviceRef.GPU(0))

def home(x):
    return x.reshape([6]).to(CPU())

x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
there = TensorType(F32, [2, 3], DeviceRef.GPU(0))
compiler = executor.find_executor()
(first,) = compiler.compile(Graph("moved", moved, [TensorType(F32, [2, 3])]), {})(Tensor(x))
(second,) = compiler.compile(Graph("home", home, [there]), {})(first)
answer([str(first.device), (second.to_numpy() == x.reshape(6)).all().item(), compiled])
""",
        gpus="9.0",
    )
    assert answer == ["gpu:0", True, []]
