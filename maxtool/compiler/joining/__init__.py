"""Kernels of a step joined into parallel regions, with barriers between them."""
