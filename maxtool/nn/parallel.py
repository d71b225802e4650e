"""Computation of layers from weights that are split over devices: each part on its device.

Results are where the argument is. A weight that is on one device is used as it is, whole.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from maxtool.graph import DeviceRef, Shard, Tensor, Weight, ops
from maxtool.nn.tensor_parallel import Role, TracedDevice, one


def local(weight: Weight, device: DeviceRef) -> Weight:
    """The weight as it is on a device: the copy there, if every device has one, else itself."""
    if not _is_copied(weight):
        return weight
    return next((shard for shard in weight.shards if shard.device == device), weight.shards[0])


def linear(x: Tensor, weight: Weight, bias: Weight | None, role: Role | None = None) -> Tensor:
    """``x @ weight.T + bias``, from ``[..., in]`` to ``[..., out]``.

    By rows, each device computes some of the outputs; by columns, a part of each sum, from the
    inputs that belong to its columns. ``role`` says what is split of ``x`` and the result where the
    graph is that of one device.
    """
    if (device := one()) is not None:
        return _on_one(x, weight, bias, role, device)
    if not weight.shards:
        return ops.linear(x, weight, bias)
    if weight.shards[0].axis == 0:
        biases = _biases(weight, bias)
        parts = [_product(x, *pair) for pair in zip(weight.shards, biases, strict=True)]
        product, bias = ops.concat(parts, axis=-1), None if biases[0] is not None else bias
    elif _is_copied(weight):
        product = _product(x, local(weight, x.device))
    else:
        product = reduce(add, [_product(_columns(x, part), part) for part in weight.shards])
    return product if bias is None else product + ops.transfer_to(local(bias, x.device), x.device)


def _on_one(
    x: Tensor, weight: Weight, bias: Weight | None, role: Role | None, device: TracedDevice
) -> Tensor:
    """The same on one of several devices, which has a part of the weight."""
    own = device.part(weight)
    if own is weight:
        return ops.linear(x, weight, bias)
    if role is Role.INPUTS:
        total = ops.all_reduce(ops.linear(x, own), device.count)
        return total if bias is None else total + bias
    product = ops.linear(x, own, None if bias is None else device.part(bias))
    return ops.all_gather(product, device.count) if role is Role.GATHERED else product


def embedding(ids: Tensor, weight: Weight) -> Tensor:
    """The entries of a table, from ``[...]`` to ``[..., width]``.

    By rows, each device has some of the entries; by columns, a part of each.
    """
    if not weight.shards:
        return ops.embedding(ids, weight)
    if _is_copied(weight):
        return _entries(ids, local(weight, ids.device))
    if weight.shards[0].axis == 0:
        return reduce(add, [_own_entries(ids, part) for part in weight.shards])
    return ops.concat([_entries(ids, part) for part in weight.shards], axis=-1)


def _is_copied(weight: Weight) -> bool:
    """Return whether every one of several devices has the whole weight."""
    return bool(weight.shards) and weight.shards[0].axis is None


def _biases(weight: Weight, bias: Weight | None) -> list[Shard] | list[None]:
    """The bias of each part of a weight that is split by rows, if the bias is split so too."""
    places = [shard.device for shard in weight.shards]
    if bias is None or _is_copied(bias) or [shard.device for shard in bias.shards] != places:
        return [None] * len(places)
    return list(bias.shards)


def _product(x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
    """A product computed where the weight is."""
    there = ops.transfer_to(x, weight.device)
    return ops.transfer_to(ops.linear(there, weight, bias), x.device)


def _columns(x: Tensor, part: Shard) -> Tensor:
    """The inputs that belong to the columns of a part."""
    start, end = part.bounds
    return x[..., start:end]


def _entries(ids: Tensor, weight: Weight) -> Tensor:
    """Entries looked up where the table is."""
    there = ops.transfer_to(ids, weight.device)
    return ops.transfer_to(ops.embedding(there, weight), ids.device)


def _own_entries(ids: Tensor, part: Shard) -> Tensor:
    """The entries that one device has, and zeros for the others.

    What is in no table is left to the first device or the last, as it would be to the whole table.
    """
    start, end = part.bounds
    inside = [ids >= start] if start > 0 else []
    inside += [ids < end] if end < int(part.whole.shape[0]) else []
    if not inside:
        return _entries(ids, part)
    mine = reduce(ops.logical_and, inside)
    entries = _entries(ops.where(mine, ids - start, 0), part)
    return ops.where(ops.unsqueeze(mine, -1), entries, 0.0)
