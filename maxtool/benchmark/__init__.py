"""Benchmarks of artifacts: their speed, and what share that is of what this machine can do.

Each artifact runs in a process of its own (``artifact_worker``), which imports the loader and no
compiler; what the machine can do is measured in another one (``machine_worker``), in turns.
"""
