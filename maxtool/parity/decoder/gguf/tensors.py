"""What a GGUF file's tensors say of the model, which its metadata leaves out."""

from __future__ import annotations

from dataclasses import replace

from maxtool.parity.decoder import names
from maxtool.parity.decoder.names import Names
from maxtool.parity.decoder.settings import ATTENTION, MLP, QKV
from maxtool.weights.checkpoint import Checkpoint


def rows(name: str, checkpoint: Checkpoint) -> int:
    """Rows of a tensor; 1 stands in for one that is not there, which is reported as missing."""
    found = checkpoint.tensors.get(name)
    return found.shape[0] if found and found.shape else 1


def used_names(checkpoint: Checkpoint, *, gated: bool) -> Names:
    """What the file calls its tensors: projections may be joined, and halves have norms each."""
    tensors, roles = checkpoint.tensors, dict(names.GGUF.roles)
    if "blk.0.attn_qkv.weight" in tensors:
        roles |= names.GGUF_QKV
    if gated and not {"blk.0.ffn_gate.weight", "blk.0.ffn_gate_inp.weight"} & tensors.keys():
        roles |= names.GGUF_GATE_UP
    if "blk.0.attn_norm_2.weight" in tensors:
        roles |= names.GGUF_TWO_NORMS
    return replace(names.GGUF, roles=roles)


def biased(checkpoint: Checkpoint) -> frozenset[str]:
    """Projections that have a bias in any layer."""
    parts = {role: (role,) for role in (*ATTENTION, *MLP)} | {"qkv": QKV}
    stems = {**names.GGUF.roles, **names.GGUF_QKV}
    ends = {stems[role].partition("{}")[2] + ".bias": inside for role, inside in parts.items()}
    found = {name.removeprefix("blk.").lstrip("0123456789") for name in checkpoint.tensors}
    return frozenset(part for end, inside in ends.items() if end in found for part in inside)
