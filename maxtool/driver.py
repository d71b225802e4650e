"""Devices: what this machine has to compute on."""

from maxtool.graph.device import CPU, Accelerator, Device, accelerator_count

__all__ = ["CPU", "Accelerator", "Device", "accelerator_count"]
