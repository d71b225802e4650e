"""JSON output: ``maxtool.inspect-weights/1``. Fields are added, never changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxtool.recipe import Recognition
    from maxtool.weights import TensorInfo
    from maxtool.weights.composite import CompositeTensor
    from maxtool.weights.distance import Distance
    from maxtool.weights.inspection import Inspection, SliceValues
    from maxtool.weights.opened_checkpoint import OpenedCheckpoint
    from maxtool.weights.pairing import Difference
    from maxtool.weights.summary import Total


def report(
    inspection: Inspection, recognition: Recognition, *, metadata: bool
) -> dict[str, object]:
    """One checkpoint; ``stats``, ``sha256``, ``values`` are there where they were asked for."""
    opened, summary = inspection.opened, inspection.summary
    content: dict[str, object] = {
        "path": opened.location,
        "format": opened.checkpoint.format,
        "files": _files(inspection),
        "notes": list(opened.checkpoint.notes),
        "total": total(summary.total),
        "types": {name: total(group) for name, group in summary.by_type.items()},
        "tensors": [_with_payload(inspection, tensor_info) for tensor_info in summary.tensors],
        "recognition": asdict(recognition),
    }
    if metadata:
        content["metadata"] = plain(opened.checkpoint.metadata)
        content["config"] = plain(opened.checkpoint.config)
    if inspection.values:
        content["values"] = [_values(values) for values in inspection.values]
    if opened.remote is not None:
        content["remote"] = {
            "requests": opened.remote.requests,
            "bytes": opened.remote.nbytes,
            "commit": opened.commit,
        }
    return content


def _files(inspection: Inspection) -> list[dict[str, object]]:
    opened, digests = inspection.opened, inspection.file_digests
    return [
        {"path": opened.shown(file), "bytes": opened.nbytes(file)}
        | ({"sha256": digests[file]} if digests else {})
        for file in opened.checkpoint.files
    ]


def _with_payload(inspection: Inspection, info: TensorInfo) -> dict[str, object]:
    content = tensor(inspection.opened, info)
    if inspection.stats:
        content["stats"] = plain(inspection.stats[info.name].as_dict())
    if inspection.digests:
        content["sha256"] = inspection.digests[info.name]
    return content


def _values(values: SliceValues) -> dict[str, object]:
    from maxtool.weights.tensor_slices import readable

    return {
        "name": values.tensor.name,
        "slice": values.text,
        "type": values.tensor.type_name,
        "shape": list(values.array.shape),
        "values": plain(readable(values.array)),
    }


def total(counted: Total) -> dict[str, int]:
    """Tensors counted together."""
    return {"tensors": counted.tensors, "parameters": counted.parameters, "bytes": counted.nbytes}


def tensor(opened: OpenedCheckpoint, info: TensorInfo) -> dict[str, object]:
    """A tensor as its header describes it."""
    from maxtool.weights.composite import CompositeTensor
    from maxtool.weights.formats.artifact import PackedTensor

    return {
        "name": info.name,
        "type": info.type_name,
        "dtype": info.dtype.name,
        "encoding": info.encoding.name if info.encoding else None,
        "shape": list(info.shape),
        "parameters": info.size,
        "bytes": info.nbytes,
        "file": opened.shown(info.file),
        "offset": info.offset,
        **({"layout": list(info.layout)} if isinstance(info, PackedTensor) else {}),
        **({"stored": _stored(opened, info)} if isinstance(info, CompositeTensor) else {}),
    }


def _stored(opened: OpenedCheckpoint, info: CompositeTensor) -> list[dict[str, object]]:
    """The tensors of the file that make a weight."""
    return [
        {
            "name": part.name,
            "type": part.type_name,
            "shape": list(part.shape),
            "bytes": part.nbytes,
            "file": opened.shown(part.file),
            "offset": part.offset,
        }
        for part in info.parts
    ]


def distance(difference: Difference) -> dict[str, object]:
    """Measures of the distance of two tensors."""
    return {**apart(difference.distance), "at": plain(difference.at)}


def apart(measured: Distance) -> dict[str, object]:
    """The measures of a distance but for the index of an element, of several pairs too."""
    return {
        "largest": plain(measured.largest),
        "differing": measured.differing,
        "elements": measured.elements,
        "rmse": plain(measured.rmse),
        "relative_error": plain(measured.relative),
        "cosine": measured.cosine,
    }


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value as JSON takes it; NaN and infinity, which it lacks, as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
