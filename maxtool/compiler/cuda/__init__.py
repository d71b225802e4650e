"""CUDA: targets, schedules, and machine code for GPUs, made where there may be none."""
