"""Choice of the device a model runs on."""

from __future__ import annotations

import re

from .errors import BadUsage, DoesNotFit, MachineLacks
from .host import Host
from .manifest import Manifest
from .processor import Processor

NAME = re.compile(r"cpu|cuda(?::(\d{1,4}))?")
# By the kind a model was compiled for: what that is, and what to do for the other.
OTHER = {
    "cpu": ("a CPU", "compile it with --target cuda for the GPU here, or --target cuda:sm_XX"),
    "cuda": ("GPUs", "compile it with --target cpu"),
}


def open_device(manifest: Manifest, device: str | None) -> Processor:
    """The device of this name, ``cpu``, ``cuda`` or ``cuda:1``; that of the model if None."""
    compiled = manifest.target.get("kind")
    if compiled not in OTHER:
        raise MachineLacks(f"this loader runs models for CPUs and GPUs, not for {compiled!r:.40}")
    device_kind, index = parse_device(compiled if device is None else device)
    if device_kind != compiled:
        what, hint = OTHER[compiled]
        raise DoesNotFit(f"the model was compiled for {what}, not for {device}", hint=hint)
    if device_kind == "cpu":
        return Host(manifest)
    from .cuda_gpu import CudaGpu  # half of the loader, which CPUs have no use for

    return CudaGpu(manifest, index)


def parse_device(name: str) -> tuple[str, int]:
    """The kind and the number of a device."""
    match = NAME.fullmatch(name)
    if match is None:
        raise BadUsage(f"--device takes cpu, cuda or cuda:1, not {name!r:.40}")
    return name.partition(":")[0], int(match[1] or 0)
