"""Write tests/data/pytorch: small files as torch saves them. Run with the ``peers`` extra.

What is in them is repeated in tests/weights/test_pytorch.py, which needs no torch to read them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

FOLDER = Path(__file__).parent / "pytorch"
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    torch.float8_e8m0fnu,
)


def kinds() -> dict[str, Any]:
    """One tensor of each type, views, shared storages, parameters, and plain values."""
    base = torch.arange(12.0)
    tagged = torch.arange(3.0)
    tagged.note = "attributes"  # type: ignore[attr-defined]
    module = torch.nn.BatchNorm1d(2)
    return {
        "types": {str(dtype).removeprefix("torch."): torch.ones(3).to(dtype) for dtype in DTYPES},
        "views": {
            "base": base,
            "tail": base[4:],
            "transposed": base.reshape(3, 4).t(),
            "every other": base[1::2],
            "middle": base.reshape(3, 4)[1:, 1:3],
            "expanded": base[:3].expand(2, 3),
            "tagged": tagged,
        },
        "parameter": torch.nn.Parameter(torch.arange(2.0)),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "norm": module.state_dict(),
        "list": [torch.zeros(1), 5],
        "epoch": 3,
        "name": "räv",
        "lr": 0.5,
        "losses": [3.5, 2.5],
        "shape": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "nothing": None,
        "big": 1 << 70,
        "raw": b"\x00\xff",
        7: torch.ones(1),
    }


def main() -> None:
    """Write every file."""
    FOLDER.mkdir(exist_ok=True)
    torch.save(kinds(), FOLDER / "kinds.pt")
    torch.save(kinds(), FOLDER / "protocol5.pt", pickle_protocol=5)
    torch.save({"a": torch.ones(2)}, FOLDER / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.nn.Linear(2, 2), FOLDER / "module.pt")
    torch.save(torch.arange(3.0), FOLDER / "tensor.pt")
    torch.jit.script(torch.nn.Linear(2, 2)).save(FOLDER / "script.pt")


if __name__ == "__main__":
    main()
