"""Elements in the memory of an accelerator, as tensors hold them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from maxtool.graph.device import DeviceRef


class AcceleratorArray(Protocol):
    """Tensor that the compiler's runtime keeps on an accelerator. Only programs change it."""

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the elements on the host, read-only: writing to it would change nothing."""
        ...

    def to(self, device: DeviceRef) -> AcceleratorArray:
        """A copy on another accelerator."""
        ...

    def __dlpack__(self, **options: Any) -> Any:  # noqa: ANN401 - the protocol's types
        """A capsule over the memory itself."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the accelerator, as DLPack counts them."""
        ...
