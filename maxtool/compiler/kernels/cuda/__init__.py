"""Kernels of NVIDIA GPUs, in TensorIR bound to blocks and threads."""
